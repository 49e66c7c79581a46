"""Which policy to measure next: the one whose measurement is expected to reduce the regret most.

A prediction errs, and the errors of two policies have causes in common: the machine and the program (shared by all),
tensor parallelism of some degree, stages, and so on. So what is measured of one policy says something of others. The
spread of each cause is in catalog/trials.toml; it is widened as the printed band is. Expected reduction of the regret
is expected improvement over the best measured so far, times the chance that the trial fits into memory; a trial that
did not fit says that others of its size will not either. Where measured steps lie farther off than the spread says, it
is widened as much.
"""

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from math import log, log1p
from pathlib import Path

import numpy as np

from shardwise import catalog
from shardwise.arrays import Floats
from shardwise.spec.policy import Policy
from shardwise.step.estimate.band import ErrorBand, band_of, base_of, tuned_band
from shardwise.step.estimate.chance import surplus_of
from shardwise.work.case import Case

HELD = 1.2815515594
"""standard deviations that a band of 80 % reaches to each side"""
NOISE = 0.01
"""by which two measurements of one policy differ, in logarithms"""
EDGE = 0.055
"""how sharply memory divides what fits from what does not, in logarithms of the peak: an error of 10 % of a policy's
own, beside what all policies of a job have in common (the scale of a logistic distribution)"""
CRASH = 0.1
"""share of trials that give no result for another reason"""
LITTLE = 0.001
"""expected improvement below which another trial is not worth it"""
TOLD = 0.01
"""effects of a cause below this are not told"""
TABLE = Path(catalog.__file__).parent / "trials.toml"


@dataclass(frozen=True)
class TrialSpread:
    """Standard deviations of the logarithm of measured over predicted time."""

    own: float
    """of each policy by itself"""
    by_field: dict[str, float]
    """of what policies with one value of a field share"""
    shared: float
    """of what all policies of a job share"""

    def scaled(self, factor: float) -> "TrialSpread":
        return TrialSpread(
            self.own * factor, {name: value * factor for name, value in self.by_field.items()}, self.shared
        )


def spread_of(case: Case) -> TrialSpread:
    """The fitted one, as much wider as the case's band is than that of a program whose runs were fitted."""
    band, between = band_of(case), tuned_band(case)
    found = _fitted()
    if band is None or between is None:
        return TrialSpread(found.own, found.by_field, found.shared).scaled(2.0)
    base = sum(abs(end) for end in base_of()) / 2.0
    wide = TrialSpread(found.own, found.by_field, _half(band) / HELD)
    return wide.scaled(max(_half(between) / base, 1.0))


def _half(band: ErrorBand) -> float:
    """Of its width, in logarithms."""
    return (abs(log1p(band.low)) + abs(log1p(band.high))) / 2.0


@cache
def _fitted() -> TrialSpread:
    table = tomllib.loads(TABLE.read_text(encoding="utf-8"))["spread"]
    low, high = base_of()
    return TrialSpread(table.pop("own"), table, (abs(low) + abs(high)) / 2.0 / HELD)


@dataclass(frozen=True)
class Learned:
    """What the trials say of one cause."""

    what: str
    factor: float
    """measured over predicted time"""


@dataclass
class TrialBelief:
    policies: Sequence[Policy]
    predicted_s: Floats
    peaks: Floats
    """predicted bytes"""
    room: float
    """bytes there are"""
    spread: TrialSpread
    surplus: tuple[Floats, Floats]
    """logarithms of measured over predicted peak, and the share of runs below each"""
    seconds: dict[int, float | None] = field(default_factory=dict)
    """of each policy that was tried; None: it gave no result"""
    never_began: set[int] = field(default_factory=set)
    """those of them that were refused"""

    def __post_init__(self) -> None:
        values, below = self.surplus
        middle = (values[1:] + values[:-1]) / 2.0
        self._surplus, self._weight = middle, np.diff(below) / max(float(np.diff(below).sum()), 1e-12)
        size = np.log(np.maximum(self.peaks, 1.0) / max(self.room, 1.0))[:, None] + middle[None, :]
        self._fails = CRASH + (1.0 - CRASH) / (1.0 + np.exp(-np.clip(size / EDGE, -40.0, 40.0)))
        differ = {name: std for name, std in self.spread.by_field.items()
                  if std > 0 and len({_value(policy, name) for policy in self.policies}) > 1}  # fmt: skip
        self._parts = {name: self._alike(name) * std**2 for name, std in differ.items()}
        # what all have alike is shared by all, whichever cause it has
        alike = sum(std**2 for name, std in self.spread.by_field.items() if name not in differ)
        self._shared = self.spread.shared**2 + alike
        everyone = np.full((len(self.policies),) * 2, self._shared)
        self._covariance = (
            everyone + sum(self._parts.values(), start=0.0 * everyone) + np.eye(len(self.policies)) * self.spread.own**2
        )

    @property
    def measured(self) -> list[int]:
        return [index for index, seconds in self.seconds.items() if seconds is not None]

    @property
    def best(self) -> int | None:
        """The fastest measured."""
        return min(self.measured, key=lambda index: self.seconds[index] or np.inf, default=None)

    def tried(self, index: int, seconds: float | None, *, began: bool = True) -> None:
        """Takes in a trial; None: it ran out of memory, or crashed, or where it never began is no longer asked for."""
        self.seconds[index] = seconds
        if not began:
            self.never_began.add(index)
            return
        likely = self._weight * (self._fails[index] if seconds is None else 1.0 - self._fails[index])
        if likely.sum() > 1e-12:
            self._weight = likely / likely.sum()

    def fits(self) -> Floats:
        """Chance of each policy that it fits into memory."""
        return np.asarray(1.0 - self._fails @ self._weight)

    def expected(self) -> tuple[Floats, Floats]:
        """Logarithm of each policy's step, and its standard deviation, after what was measured."""
        mean, covariance, known = np.log(self.predicted_s), self._covariance, self.measured
        if known:
            gain = self._gain(known)
            mean = mean + gain @ self._errors(known)
            covariance = covariance - gain @ covariance[known]
        return mean, self.wider * np.sqrt(np.maximum(np.diag(covariance), 1e-12))

    @property
    def wider(self) -> float:
        """How many times as far as the spread says the measured steps lie from the predicted ones; at least 1."""
        known = self.measured
        if not known:
            return 1.0
        errors = self._errors(known)
        apart = float(errors @ np.linalg.solve(self._observed(known), errors)) / len(known)
        return float(np.sqrt(max(apart, 1.0)))

    def worth(self) -> Floats:
        """Of measuring each policy: expected shortening of the best step so far, as a share of it. 0 for those
        tried."""
        mean, deviation = self.expected()
        best = self.best
        if best is None:
            found = self.fits() * np.exp(mean.min() - mean)
        else:
            ahead = (log(self.seconds[best] or 1.0) - mean) / deviation
            found = self.fits() * deviation * (ahead * _below(ahead) + _density(ahead))
        found[list(self.seconds)] = 0.0
        return np.asarray(found)

    def next(self, least: float = LITTLE) -> tuple[int, float] | None:
        """The policy to try and what that is worth; None where nothing is left, or nothing worth more than `least`."""
        worth = self.worth()
        worth[list(self.seconds)] = -1.0
        index = int(np.argmax(worth))
        if worth[index] <= (0.0 if self.best is None else least):
            return None
        return index, float(worth[index])

    def ranked(self) -> list[int]:
        """By the step that is expected now: measured ones at what was measured, those that failed last."""
        mean, _ = self.expected()
        failed = {index for index, seconds in self.seconds.items() if seconds is None}
        step = {index: log(seconds) for index, seconds in self.seconds.items() if seconds is not None}
        return sorted(range(len(self.policies)), key=lambda i: (i in failed, step.get(i, float(mean[i]))))

    def learned(self) -> list[Learned]:
        """How far off predictions are for all policies, and for those with one value of a field."""
        known = self.measured
        if not known:
            return []
        weights = np.linalg.solve(self._observed(known), self._errors(known))
        found = [Learned("every policy", float(np.exp(self._shared * weights.sum())))]
        for name, part in self._parts.items():
            for value in dict.fromkeys(_value(policy, name) for policy in self.policies):
                one = next(i for i, policy in enumerate(self.policies) if _value(policy, name) == value)
                effect = float(part[one, known] @ weights)
                if abs(effect) >= TOLD:
                    found.append(Learned(f"{name} {value}", float(np.exp(effect))))
        return found

    def _alike(self, name: str) -> Floats:
        values = [_value(policy, name) for policy in self.policies]
        codes = np.array([list(dict.fromkeys(values)).index(value) for value in values])
        return np.asarray(codes[:, None] == codes[None, :], dtype=np.float64)

    def _errors(self, known: list[int]) -> Floats:
        return np.array([log(self.seconds[i] or 1.0) - log(self.predicted_s[i]) for i in known])

    def _observed(self, known: list[int]) -> Floats:
        return np.asarray(self._covariance[np.ix_(known, known)] + np.eye(len(known)) * NOISE**2)

    def _gain(self, known: list[int]) -> Floats:
        return np.asarray(np.linalg.solve(self._observed(known), self._covariance[known]).T)


def belief_of(case: Case, policies: Sequence[Policy], predicted_s: Floats, peaks: Floats) -> TrialBelief:
    room = case.cluster.gpu.memory_bytes - case.stack.memory.reserve_bytes
    return TrialBelief(policies, predicted_s, peaks, room, spread_of(case), surplus_of(case))


def _value(policy: Policy, name: str) -> object:
    if name == "recompute":
        return policy.recompute, policy.offload
    return getattr(policy, name)


def _below(values: Floats) -> Floats:
    """Share of a normal distribution below each value."""
    from math import erf

    return np.array([0.5 * (1.0 + erf(value / np.sqrt(2.0))) for value in values])


def _density(values: Floats) -> Floats:
    return np.asarray(np.exp(-0.5 * values**2) / np.sqrt(2.0 * np.pi))
