"""How long the sequences of a data set are: lengths from a file, or a distribution with stated numbers."""

from math import erfc, log, sqrt
from pathlib import Path

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from shardwise.fields import read_file, short, state_once

Tokens = NDArray[np.int64]
MOST_BYTES = 16 * 2**20
MOST_TOKENS = 10**8
WANTED = "a file with one length on each line, or lognormal,mean=600,sigma=1 or uniform,low=100,high=2000"
NUMBERS = {"lognormal": ("mean", "sigma"), "uniform": ("low", "high")}
MOST_SIGMA = 10.0
PACKINGS = ("off", "on", "dynamic")
"""padded to the longest of a micro-batch; several in a buffer; on as many context-parallel ranks as each asks for"""


class DataLengths(Struct, frozen=True, kw_only=True):
    name: str
    numbers: tuple[float, ...] = ()
    """of a distribution, in the order of NUMBERS"""
    counted: tuple[int, ...] = ()
    """of a file: the length of every sequence"""

    def drawn(self, count: int, longest: int, generator: "np.random.Generator") -> Tokens:
        """So many, drawn independently; longer ones are cut."""
        if self.counted:
            found = generator.choice(np.array(self.counted, dtype=np.int64), count)
        elif self.name == "lognormal":
            mean, sigma = self.numbers
            found = generator.lognormal(log(mean) - sigma**2 / 2, sigma, count)
        else:
            low, high = self.numbers
            found = generator.uniform(low, high + 1, count)
        return np.asarray(np.clip(np.floor(np.minimum(found, longest)), 1, longest), dtype=np.int64)

    def longer_than(self, tokens: int) -> float:
        """Share of the sequences."""
        if self.counted:
            return sum(length > tokens for length in self.counted) / len(self.counted)
        if self.name == "lognormal":
            mean, sigma = self.numbers
            return erfc((log(tokens + 1) - log(mean) + sigma**2 / 2) / (sigma * sqrt(2))) / 2
        low, high = self.numbers
        return min(max((high - tokens) / (high + 1 - low), 0.0), 1.0)


class LengthsChoice(Struct, frozen=True, kw_only=True):
    """The lengths of the data, and how sequences share micro-batches and ranks."""

    lengths: DataLengths
    packing: str = "off"
    """one of PACKINGS"""


def lengths_of(text: str) -> DataLengths:
    name, *words = (word.strip() for word in text.split(","))
    if name in NUMBERS:
        return _distribution(name, words)
    path = Path(text)
    raw = read_file(path, "lengths", MOST_BYTES, WANTED)
    try:
        found = tuple(int(word) for word in raw.decode("ascii").replace(",", " ").split())
    except (UnicodeDecodeError, ValueError):
        raise ValueError(f"lengths: {path.name!r} has something else than whole numbers; write {WANTED}") from None
    if not found:
        raise ValueError(f"lengths: {path.name!r} is empty; write {WANTED}")
    wrong = next((length for length in found if not 1 <= length <= MOST_TOKENS), None)
    if wrong is not None:
        raise ValueError(f"lengths: {short(wrong)} in {path.name!r}; write whole numbers from 1 to {MOST_TOKENS:,}")
    return DataLengths(name=path.name, counted=found)


def _distribution(name: str, words: list[str]) -> DataLengths:
    wanted, stated = NUMBERS[name], dict[str, float]()
    for word in words:
        key, sign, value = word.partition("=")
        if key not in wanted or not sign:
            raise ValueError(f"lengths: cannot read {word!r} of {name}; write {WANTED}")
        try:
            number = float(value)
        except ValueError:
            raise ValueError(f"lengths: {key}={value!r} is not a number; write {WANTED}") from None
        state_once(stated, key, number, "lengths")
    missing = [key for key in wanted if key not in stated]
    if missing:
        raise ValueError(f"lengths: {name} has no {missing[0]}; write {WANTED}")
    first, second = numbers = tuple(stated[key] for key in wanted)
    good = 0 < second <= MOST_SIGMA if name == "lognormal" else first <= second <= MOST_TOKENS
    if not (1 <= first <= MOST_TOKENS and good):
        told = ", ".join(f"{key}={stated[key]:g}" for key in wanted)
        raise ValueError(f"lengths: {told} is out of range; write {WANTED}")
    return DataLengths(name=name, numbers=numbers)
