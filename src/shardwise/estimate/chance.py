"""TEMP"""

import numpy as np

from shardwise.case import Case
from shardwise.work.layout import Numbers

_S = np.array([-0.4, -0.235, -0.098, -0.022, 0.037, 0.072, 0.085, 0.266, 0.447])
_B = np.array([0.0, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 1.0])


def out_of_memory_chance(case: Case, memory_bytes: Numbers) -> Numbers:
    room = case.cluster.gpu.memory_bytes - case.stack.memory.reserve_bytes
    return np.asarray(1.0 - np.interp(np.log(room / np.maximum(memory_bytes, 1.0)), _S, _B))


def most_bytes(case: Case, chance: float) -> float:
    room = case.cluster.gpu.memory_bytes - case.stack.memory.reserve_bytes
    return float(room / np.exp(np.interp(1.0 - chance, _B, _S)))
