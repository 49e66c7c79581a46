"""What measured runs say of a prediction: the mean and the band of a step after any number of them.

The logarithm of measured over predicted time is a sum over the causes of `causes.py`. Each has a factor that all runs
of one site share (whoever runs one program), one that runs of one job share (one model on one GPU), and an error of
each run by itself, most of which layouts next to it share. All are normal with the means and spreads of
catalog/prior.toml, so runs are conditioned on in closed form; the tails are those of Student's t, since some sites are
much farther off than most.
"""

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from msgspec import Struct, convert

from shardwise import catalog
from shardwise.arrays import Floats
from shardwise.step.estimate.causes import CAUSES, SIZES

TABLE = Path(catalog.__file__).parent / "prior.toml"
NORMAL = 1.2815515594
"""standard deviations that 80 % of a normal distribution reach to each side"""
NEARBY = 0.75
"""share of a run's own variance that layouts next to it of the same job have too; this and the next two were chosen on
public runs, where `benchmarks/learn.py` shows the error and the coverage that they give"""
REACHES = 2.0
"""doublings of a size over which that is so"""
OF_A_STEP = 20.0
"""doublings that a part of all of the step counts as: 5 % more of it in one part count as one"""
NOISE = 0.01
"""by which two measurements of one run differ, in logarithms"""


_DOUBLINGS = np.array([1.0 if name in SIZES else OF_A_STEP for name in CAUSES])


class CauseSpread(Struct, frozen=True, forbid_unknown_fields=True):
    """Standard deviations of one cause's factor, in the logarithm of the step for each unit of the cause."""

    site: float
    """shared by all runs of one site"""
    job: float
    """shared by runs of one model on one GPU"""
    own: float
    """of each run"""
    mean: float = 0.0
    """of the factor over all sites"""


class SeenShares(Struct, frozen=True, forbid_unknown_fields=True):
    """Shares of these variances that are left where constants were fitted on runs of the very site."""

    shared: float
    own: float


class PriorTable(Struct, frozen=True, forbid_unknown_fields=True):
    fitted_on: str
    degrees: float
    """of freedom of Student's t: how much farther off a site may be than most"""
    seen: SeenShares
    causes: dict[str, CauseSpread]


@dataclass(frozen=True)
class Prior:
    """Variances by cause, and means."""

    site: Floats
    job: Floats
    own: Floats
    mean: Floats
    degrees: float

    def scaled(self, shares: SeenShares) -> "Prior":
        shared, own = shares.shared, shares.own
        return Prior(self.site * shared, self.job * shared, self.own * own, 0.0 * self.mean, self.degrees)

    def own_of(self, causes: Floats) -> Floats:
        """Variance of each run by itself."""
        return np.asarray(causes**2 @ self.own + NOISE**2)


class LearnedStep(NamedTuple):
    """Of the logarithm of measured over predicted time."""

    mean: Floats
    deviation: Floats
    reach: float
    """deviations to each end of a band of 80 %"""

    @property
    def low(self) -> Floats:
        return self.mean - self.reach * self.deviation

    @property
    def high(self) -> Floats:
        return self.mean + self.reach * self.deviation


@cache
def prior_of(seen: bool) -> Prior:
    """`seen`: constants were fitted on runs of this very site."""
    table = convert(tomllib.loads(TABLE.read_text(encoding="utf-8")), PriorTable)
    spreads = [table.causes[name] for name in CAUSES]
    site, job, own = (np.array([getattr(each, level) ** 2 for each in spreads]) for level in ("site", "job", "own"))
    prior = Prior(site, job, own, np.array([each.mean for each in spreads]), table.degrees)
    return prior.scaled(table.seen) if seen else prior


class Posterior:
    """A prior and the runs of one site."""

    def __init__(self, prior: Prior, causes: Floats, errors: Floats, jobs: Sequence[str]) -> None:
        """`errors`: logarithm of measured over predicted time of each run; `jobs`: model and GPU of each."""
        self.prior, self.causes, self.errors, self.jobs = prior, causes, errors, tuple(jobs)
        shared = _shared(prior, causes, causes, _same(self.jobs, self.jobs))
        alone = (1.0 - NEARBY) * (causes**2 @ prior.own) + NOISE**2
        self.inverse = np.linalg.inv(shared + np.diag(alone)) if len(errors) else np.zeros((0, 0))
        apart = errors - causes @ prior.mean
        self.weights = self.inverse @ apart
        self.surprise = float(apart @ self.weights)
        """how far the runs lie off, in squares of what was expected: about one for each run"""

    def at(self, causes: Floats, job: str) -> LearnedStep:
        """For steps with such causes, one row each."""
        prior, number = self.prior, len(self.errors)
        variance = causes**2 @ (prior.site + prior.job) + prior.own_of(causes)
        mean = causes @ prior.mean
        if number:
            shared = _shared(prior, causes, self.causes, _same((job,), self.jobs))
            mean = mean + shared @ self.weights
            variance = variance - np.sum((shared @ self.inverse) * shared, axis=1)
        return LearnedStep(mean, np.sqrt(self._wider() * variance), reach(prior.degrees + number))

    def _wider(self) -> float:
        """By how much runs that lie farther off than expected widen every variance."""
        degrees = self.prior.degrees
        unit = (degrees - 2.0) / degrees
        return (degrees + self.surprise / unit) / (degrees + len(self.errors)) * unit

    def change(self, first: Floats, others: Floats, job: str) -> Floats:
        """How far the logarithm of a step's change may lie from its prediction, in a band of 80 %: from a step with the
        causes `first` to each of `others`. What both share cancels."""
        one, same = first[None, :], np.ones((1, 1))
        steps = np.concatenate([one, others])
        variance = self.prior.own_of(steps) + steps**2 @ (self.prior.site + self.prior.job)
        common = _shared(self.prior, one, others, same)[0]
        if len(self.errors):
            shared = _shared(self.prior, steps, self.causes, _same((job,), self.jobs))
            told = shared @ self.inverse
            variance = variance - np.sum(told * shared, axis=1)
            common = common - told[1:] @ shared[0]
        apart = variance[0] + variance[1:] - 2.0 * common
        return np.asarray(reach(self.prior.degrees + len(self.errors)) * np.sqrt(self._wider() * apart))

    def least_near(self, causes: Floats, settled: Floats, job: str) -> Floats:
        """A bound below what the errors of runs nearby add to steps of which only the `settled` causes are known."""
        if not len(self.errors):
            return np.zeros(len(causes))
        own, known = self.prior.own, settled > 0
        most = causes[:, known] ** 2 @ own[known] + own[~known].sum()
        spread = np.sqrt(most[:, None] * (self.causes**2 @ own))
        near = spread * _nearness(causes * settled, self.causes * settled) * _same((job,), self.jobs)
        return np.asarray(NEARBY * near @ np.minimum(self.weights, 0.0))

    def factors(self, job: str) -> Floats:
        """Of each cause, in the logarithm of the step for each unit of it: its mean, and what was learned."""
        if not len(self.errors):
            return self.prior.mean
        same = _same((job,), self.jobs)[0]
        site, own = self.causes.T @ self.weights, self.causes.T @ (self.weights * same)
        return np.asarray(self.prior.mean + self.prior.site * site + self.prior.job * own)


def _same(jobs: Sequence[str], others: Sequence[str]) -> Floats:
    return np.array([[float(one == other) for other in others] for one in jobs]).reshape(len(jobs), len(others))


def _shared(prior: Prior, causes: Floats, others: Floats, same: Floats) -> Floats:
    """Covariance of what two runs share; `same`: 1 where both are of one job."""
    of_job = (causes * prior.job) @ others.T + NEARBY * (causes * prior.own) @ others.T * _nearness(causes, others)
    return np.asarray((causes * prior.site) @ others.T + of_job * same)


def _nearness(causes: Floats, others: Floats) -> Floats:
    """1 for two layouts that are the same, 0 for far ones."""
    apart = (causes[:, None, :] - others[None, :, :]) * _DOUBLINGS
    return np.asarray(np.exp(-np.sum(apart**2, axis=-1) / (2.0 * REACHES**2)))


def reach(degrees: float) -> float:
    """Deviations within which 80 % of Student's t lie: the Cornish-Fisher expansion, right to 1e-3 from 3 degrees."""
    z, n = NORMAL, degrees
    first = (z**3 + z) / 4.0
    second = (5.0 * z**5 + 16.0 * z**3 + 3.0 * z) / 96.0
    third = (3.0 * z**7 + 19.0 * z**5 + 17.0 * z**3 - 15.0 * z) / 384.0
    return z + first / n + second / n**2 + third / n**3
