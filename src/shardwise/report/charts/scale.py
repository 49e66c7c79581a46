"""From numbers to pixels, and round numbers to write beside them."""

import math
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Scale:
    low: float
    high: float
    start: float
    """pixel of `low`"""
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        if self.log:
            return self._at(math.log(max(value, self.low)), math.log(self.low), math.log(self.high))
        return self._at(value, self.low, self.high)

    def _at(self, value: float, low: float, high: float) -> float:
        share = 0.5 if high == low else (value - low) / (high - low)
        return self.start + share * (self.end - self.start)

    def ticks(self, about: int = 5) -> list[float]:
        """Powers of ten on a long logarithmic axis, 1, 2 and 5 times them on a shorter one, else equal round steps."""
        if self.high <= self.low:
            return [self.low]
        if self.log:
            powers = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
            for parts, least in (((1,), 4), ((1, 2, 5), 3)):
                found = [m * 10.0**p for p in powers for m in parts if _inside(m * 10.0**p, self.low, self.high)]
                if len(found) >= least:
                    return found[:: math.ceil(len(found) / 9)]
        step = round_step((self.high - self.low) / about)
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        return [number * step for number in range(first, last + 1)]


def _inside(value: float, low: float, high: float) -> bool:
    return low * (1 - 1e-9) <= value <= high * (1 + 1e-9)


def round_step(least: float) -> float:
    """The next of 1, 2, 5, 10, 20, 50 and so on."""
    power = 10.0 ** math.floor(math.log10(least))
    return next(part * power for part in (1, 2, 5, 10) if part * power >= least * (1 - 1e-9))


def apart(places: Iterable[tuple[float, float]]) -> list[int]:
    """Which of labels (middle, width), from left to right, may stand without touching; the last one always does."""
    known = list(places)
    kept: list[int] = []
    for number in range(len(known) - 1, -1, -1):
        if kept:
            (here, wide), (there, other) = known[number], known[kept[-1]]
            if there - here < (wide + other) / 2 + 6:
                continue
        kept.append(number)
    return kept[::-1]
