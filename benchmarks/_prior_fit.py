"""The prior of `shardwise.step.estimate.posterior` from measured runs: marginal likelihood over sites, cause by cause.

Every variance is multiplied by the root of what its factor explains over what it is expected to (MacKay's fixed point),
which raises the likelihood until the two agree. A publisher is one site.
"""

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from _learn_rows import LearnRow, arrays, thinned, weights_of
from shardwise.arrays import Floats
from shardwise.step.estimate.causes import CAUSES, SIZES, SUPPORT
from shardwise.step.estimate.posterior import NOISE, CauseSpread, Prior, PriorTable, SeenShares

DEGREES = 4.0
MOST_OF_GROUP, MOST_OF_PUBLISHER = 20, 10
ROUNDS = 60
LEVEL_GUESS, SHARE_GUESS, SIZES_GUESS = (0.1, 0.04, 0.05), (0.2, 0.07, 0.1), (0.02, 0.01, 0.005)
"""standard deviations by level (site, job, own) before any run is seen: of what holds for whole steps, of parts of a
step, and of doublings"""
COUNTS = (2.0, 1.0, 1.0)
"""sites, jobs and runs that these guesses count as"""
MOVED = ("level", "runs of others", "program", "chip")
"""causes whose mean over sites is not taken as 0"""
MEAN_SPREAD = 0.1
"""that these means are expected to have"""
LEAST = 1e-8
LARGEST = 1.0


def fitted_prior(rows: Sequence[LearnRow]) -> Prior:
    rows = thinned(rows, MOST_OF_GROUP)
    weights = weights_of(rows, MOST_OF_PUBLISHER)
    sites: dict[str, list[LearnRow]] = defaultdict(list)
    for row in rows:
        sites[row.publisher].append(row)
    parts = [(weights[name], *arrays(group), _jobs(group)) for name, group in sites.items()]
    width = len(CAUSES)
    site, job, own = np.full(width, 1e-2), np.full(width, 1e-3), np.full(width, 1e-4)
    own[0], mean = 3e-3, np.zeros(width)
    moved = [CAUSES.index(name) for name in MOVED]
    for _ in range(ROUNDS):
        pull, pulled = np.eye(len(moved)) / MEAN_SPREAD**2, np.zeros(len(moved))
        explained, expected = _before(np.array([site, job, own]))
        for weight, causes, surplus, same in parts:
            shared = (causes * site) @ causes.T + (causes * job) @ causes.T * same
            inverse = np.linalg.inv(shared + np.diag(causes**2 @ own + NOISE**2))
            some = causes[:, moved]
            pull, pulled = pull + weight * some.T @ inverse @ some, pulled + weight * some.T @ inverse @ surplus
            apart = inverse @ (surplus - causes @ mean)
            explained[0] += weight * (causes.T @ apart) ** 2
            expected[0] += weight * np.sum(causes * (inverse @ causes), axis=0)
            explained[1] += weight * np.sum(causes * apart[:, None] * (same @ (causes * apart[:, None])), axis=0)
            expected[1] += weight * np.sum(causes * ((inverse * same) @ causes), axis=0)
            explained[2] += weight * (causes**2).T @ apart**2
            expected[2] += weight * (causes**2).T @ np.diag(inverse)
        change = np.clip(np.sqrt(explained / expected), 1 / 3, 3.0)
        mean[moved] = np.linalg.solve(pull, pulled)
        site, job, own = (np.clip(v * c, LEAST, LARGEST) for v, c in zip((site, job, own), change, strict=True))
    return Prior(site, job, own, mean, DEGREES)


def _before(now: Floats) -> tuple[Floats, Floats]:
    """What the guess adds: an inverse gamma distribution of each variance, as if `COUNTS` factors had been seen."""
    kinds = [SIZES_GUESS if name in SIZES else LEVEL_GUESS if name in (*SUPPORT, "level") else SHARE_GUESS
             for name in CAUSES]  # fmt: skip
    guess, counts = np.array(kinds).T ** 2, np.array(COUNTS)[:, None]
    guess[0, CAUSES.index("network")] = 1.0  # its deviation is known
    return counts * guess / now**2, counts / now


def _jobs(group: Sequence[LearnRow]) -> Floats:
    return np.array([[float(one.group == other.group) for other in group] for one in group])


def table_of(prior: Prior, fitted_on: str, seen: SeenShares) -> PriorTable:
    spreads = zip(*(np.sqrt(level) for level in (prior.site, prior.job, prior.own)), prior.mean, strict=True)
    causes = {
        name: CauseSpread(*(round(float(value), 4) for value in three))
        for name, three in zip(CAUSES, spreads, strict=True)
    }
    return PriorTable(fitted_on, prior.degrees, seen, causes)
