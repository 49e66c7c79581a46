"""How likely a policy is to run out of memory, given its predicted peak.

The chance is read off measured over predicted peaks of published runs (catalog/bands.toml), in which a source weighs as
the root of its runs: the share of them whose surplus would not have fitted.
"""

import tomllib
from functools import cache

import numpy as np

from shardwise.step.estimate.band import TABLE, band_of
from shardwise.work.case import Case
from shardwise.work.layout import Numbers

LEAST = 0.005
"""smaller risks are not told apart: the table they are read off ends there"""


def out_of_memory_chance(case: Case, memory_bytes: Numbers) -> Numbers:
    """`memory_bytes`: predicted peaks of the fullest stage. 0 to 1, rising with the peak."""
    room = _room(case)
    if room <= 0:
        return np.ones_like(memory_bytes)
    surplus, below = surplus_of(case)
    return np.asarray(1.0 - np.interp(np.log(room / np.maximum(memory_bytes, 1.0)), surplus, below))


def chance_text(chance: float) -> str:
    return f"less than {LEAST:.1%}" if chance < LEAST else f"{chance:.0%}"


def most_bytes(case: Case, chance: float) -> float:
    """The largest predicted peak whose chance to run out of memory is no higher."""
    surplus, below = surplus_of(case)
    return float(max(_room(case), 0.0) / np.exp(np.interp(1.0 - chance, below, surplus)))


def _room(case: Case) -> float:
    return case.cluster.gpu.memory_bytes - case.stack.memory.reserve_bytes


def surplus_of(case: Case) -> tuple[Numbers, Numbers]:
    """Logarithms of measured over predicted peak, and the share of published runs below each."""
    band = band_of(case)
    return _peaks("left_out" if band is None or "alike" in band.missing else "seen")


@cache
def _peaks(whose: str) -> tuple[Numbers, Numbers]:
    """(logarithm of measured over predicted peak, share of runs below): a line through the table's points, which the
    last two on either side carry on to 0 and 1."""
    table = tomllib.loads(TABLE.read_text(encoding="utf-8"))["peak"]
    surplus, below = np.array(table[whose]), np.array(table["share_below"])
    first = surplus[0] - below[0] * (surplus[1] - surplus[0]) / (below[1] - below[0])
    last = surplus[-1] + (1 - below[-1]) * (surplus[-1] - surplus[-2]) / (below[-1] - below[-2])
    return np.array([first, *surplus, last]), np.array([0.0, *below, 1.0])
