"""Which policy to measure next: the one whose measurement is expected to reduce the regret most.

A prediction errs, and the errors of two policies have causes in common, so a measurement of one policy says something
of the others: runs are conditioned on as `learn` does it (step/estimate/posterior.py). Expected reduction of the regret
is expected improvement over the best measured so far, times the probability that the trial fits into memory; a trial
that did not fit says that others of its size will not either.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import erf, log

import numpy as np
from msgspec.structs import replace

from shardwise.arrays import Floats
from shardwise.cost.calibrate.profile import LearnedRun
from shardwise.spec.policy import Policy
from shardwise.step.estimate.chance import surplus_of
from shardwise.step.estimate.learned import causes_of_runs, posterior_of
from shardwise.step.estimate.posterior import LearnedStep
from shardwise.work.case import Case

EDGE = 0.055
"""how sharply memory divides what fits from what does not, in logarithms of the peak: an error of 10 % of a policy's
own, beside what all policies of a job have in common (the scale of a logistic distribution)"""
CRASH = 0.1
"""share of trials that give no result for another reason"""
LITTLE = 0.001
"""expected improvement below which another trial is not worth it"""


@dataclass
class TrialBelief:
    policies: Sequence[Policy]
    runs: Sequence[LearnedRun]
    """each policy as a run that took the time predicted of it"""
    peaks: Floats
    """predicted bytes"""
    room: float
    """bytes there are"""
    surplus: tuple[Floats, Floats]
    """logarithms of measured over predicted peak, and the share of runs below each"""
    before: tuple[LearnedRun, ...] = ()
    """other runs of the site"""
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
        self._causes = causes_of_runs(self.runs)
        self._predicted = np.log([run.predicted_s for run in self.runs])

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

    @property
    def known(self) -> tuple[LearnedRun, ...]:
        """Runs of the site, those that were tried among them."""
        tried = [(index, seconds) for index, seconds in self.seconds.items() if seconds is not None]
        return (*self.before, *(replace(self.runs[index], measured_s=seconds) for index, seconds in tried))

    def expected(self) -> LearnedStep:
        """Logarithm of each policy's step after what was measured."""
        known = self.known
        step = posterior_of(known).at(self._causes, self.runs[0].job)
        return step._replace(mean=self._predicted + (step.mean if known else 0.0))

    @property
    def wider(self) -> float:
        """How many times as far as expected the measured steps lie from the predicted ones; at least 1."""
        known = self.known
        return float(np.sqrt(max(posterior_of(known).surprise / len(known), 1.0))) if known else 1.0

    def worth(self) -> Floats:
        """Of measuring each policy: expected shortening of the best step so far, as a share of it. 0 for those
        tried."""
        mean, deviation, _ = self.expected()
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
        mean = self.expected().mean
        failed = {index for index, seconds in self.seconds.items() if seconds is None}
        step = {index: log(seconds) for index, seconds in self.seconds.items() if seconds is not None}
        return sorted(range(len(self.policies)), key=lambda i: (i in failed, step.get(i, float(mean[i]))))


def belief_of(
    case: Case, policies: Sequence[Policy], runs: Sequence[LearnedRun], peaks: Floats, before: Sequence[LearnedRun] = ()
) -> TrialBelief:
    """`runs`: as they are predicted without any run of the site; `before`: the runs that are known of it already."""
    room = case.cluster.gpu.memory_bytes - case.stack.memory.reserve_bytes
    return TrialBelief(policies, runs, peaks, room, surplus_of(case), tuple(before))


def _below(values: Floats) -> Floats:
    """Share of a normal distribution below each value."""
    return np.array([0.5 * (1.0 + erf(value / np.sqrt(2.0))) for value in values])


def _density(values: Floats) -> Floats:
    return np.asarray(np.exp(-0.5 * values**2) / np.sqrt(2.0 * np.pi))
