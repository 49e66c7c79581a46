"""What GPUs that wait for each other lose to the slowest of them: a law of their number, with no fitted constant.

GPUs of one kind differ in the clock their power limit leaves them, and the slowest sets the pace of a step in which all
synchronise. If the time of one is normal around 1 with the standard deviation sigma, the slowest of n takes

    1 + sigma · E(n)        E(n): `work.largest`

sigma is read from published spreads of whole clusters (catalog/stragglers.toml). Constants of a program hold what the
runs they were fitted on lost, those of `fitted_gpus` GPUs: beyond these a step is longer by sigma · (E(n) − E(fitted)).
"""

import tomllib
from functools import cache
from pathlib import Path
from statistics import NormalDist

import numpy as np

from shardwise import catalog
from shardwise.spec.software import Stack
from shardwise.work.largest import largest_of
from shardwise.work.layout import Numbers

TABLE = Path(catalog.__file__).parent / "stragglers.toml"
WHISKERS = 2.0 * (NormalDist().inv_cdf(0.75) + 1.5 * 2.0 * NormalDist().inv_cdf(0.75))
"""standard deviations between the whiskers of a box plot, which reach 1.5 times the box beyond it"""


def waiting_share(gpus: Numbers | float, stack: Stack) -> Numbers:
    """What so many GPUs that wait for each other lose besides what is in the program's constants, as a share."""
    fitted = stack.network.fitted_gpus
    numbers = np.asarray(gpus, dtype=np.float64)
    if numbers.size and numbers.min() == numbers.max():
        # as in every scan: all policies of a job fill the same cluster
        return np.full(numbers.shape, _share(float(numbers.flat[0]), fitted))
    different, where = np.unique(numbers, return_inverse=True)
    shares = np.array([_share(float(number), fitted) for number in different])
    return np.asarray(shares[where].reshape(numbers.shape))


@cache
def _share(gpus: float, fitted: int) -> float:
    return _spread() * max(largest_of(gpus) - largest_of(fitted), 0.0)


@cache
def _spread() -> float:
    """Standard deviation of a GPU's time."""
    variation: float = tomllib.loads(TABLE.read_text(encoding="utf-8"))["gpus"]["variation"]
    return variation / WHISKERS
