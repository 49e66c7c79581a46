"""The prior of `shardwise.step.estimate.posterior` from measured runs: marginal likelihood over sites, cause by cause.

Every variance is multiplied by the root of what its factor explains over what it is expected to (MacKay's fixed point),
which raises the likelihood until the two agree. A publisher is one site.
"""

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from _learn_rows import LearnRow, arrays, thinned, weights_of
from shardwise.arrays import Floats
from shardwise.step.estimate.causes import CAUSES
from shardwise.step.estimate.posterior import NOISE, CauseSpread, Prior, PriorTable, SeenShares

DEGREES = 4.0
MOST_OF_GROUP, MOST_OF_PUBLISHER = 20, 10
ROUNDS = 60
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
    own[0] = 3e-3
    for _ in range(ROUNDS):
        explained, expected = np.zeros((3, width)), np.full((3, width), 1e-12)
        for weight, causes, surplus, same in parts:
            shared = (causes * site) @ causes.T + (causes * job) @ causes.T * same
            inverse = np.linalg.inv(shared + np.diag(causes**2 @ own + NOISE**2))
            apart = inverse @ surplus
            explained[0] += weight * (causes.T @ apart) ** 2
            expected[0] += weight * np.sum(causes * (inverse @ causes), axis=0)
            explained[1] += weight * np.sum(causes * apart[:, None] * (same @ (causes * apart[:, None])), axis=0)
            expected[1] += weight * np.sum(causes * ((inverse * same) @ causes), axis=0)
            explained[2] += weight * (causes**2).T @ apart**2
            expected[2] += weight * (causes**2).T @ np.diag(inverse)
        change = np.clip(np.sqrt(np.maximum(explained, 1e-12) / expected), 1 / 3, 3.0)
        site, job, own = (np.clip(v * c, LEAST, LARGEST) for v, c in zip((site, job, own), change, strict=True))
    return Prior(site, job, own, DEGREES)


def _jobs(group: Sequence[LearnRow]) -> Floats:
    return np.array([[float(one.group == other.group) for other in group] for one in group])


def table_of(prior: Prior, fitted_on: str, seen: SeenShares) -> PriorTable:
    spreads = zip(*(np.sqrt(level) for level in (prior.site, prior.job, prior.own)), strict=True)
    causes = {
        name: CauseSpread(*(round(float(value), 4) for value in three))
        for name, three in zip(CAUSES, spreads, strict=True)
    }
    return PriorTable(fitted_on, prior.degrees, seen, causes)
