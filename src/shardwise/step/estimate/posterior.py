"""What measured runs say of a prediction: the mean and the band of a step after any number of them.

The logarithm of measured over predicted time is a sum over the causes of `causes.py`. Each has a factor that all runs
of one site share (whoever runs one program), one that runs of one job share (one model on one GPU), and an error of
each run by itself. All are normal with the means and spreads of catalog/prior.toml, so runs are conditioned on in
closed form; the tails are those of Student's t, since some sites are much farther off than most.
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
from shardwise.step.estimate.causes import CAUSES

TABLE = Path(catalog.__file__).parent / "prior.toml"
NORMAL = 1.2815515594
"""standard deviations that 80 % of a normal distribution reach to each side"""
NOISE = 0.01
"""by which two measurements of one run differ, in logarithms"""


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
        self.inverse = np.linalg.inv(shared + np.diag(prior.own_of(causes))) if len(errors) else np.zeros((0, 0))
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
        degrees = prior.degrees
        unit = (degrees - 2.0) / degrees
        wider = (degrees + self.surprise / unit) / (degrees + number) * unit
        return LearnedStep(mean, np.sqrt(wider * variance), reach(degrees + number))

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
    """Covariance of what two runs share."""
    return np.asarray((causes * prior.site) @ others.T + (causes * prior.job) @ others.T * same)


def reach(degrees: float) -> float:
    """Deviations within which 80 % of Student's t lie: the Cornish-Fisher expansion, right to 1e-3 from 3 degrees."""
    z, n = NORMAL, degrees
    first = (z**3 + z) / 4.0
    second = (5.0 * z**5 + 16.0 * z**3 + 3.0 * z) / 96.0
    third = (3.0 * z**7 + 19.0 * z**5 + 17.0 * z**3 - 15.0 * z) / 384.0
    return z + first / n + second / n**2 + third / n**3
