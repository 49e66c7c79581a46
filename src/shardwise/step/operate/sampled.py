"""Runs drawn at random, failure by failure: what a closed form cannot say (spread, spares that run out, failures that
come in clusters), and whether it is right about the rest. Deterministic by its seed."""

from dataclasses import dataclass
from math import gamma, isinf

import numpy as np
from numpy.typing import NDArray

from shardwise.arrays import Ints
from shardwise.step.operate.goodput import Restart, Saves

Numbers = NDArray[np.float64]
Z_90 = 1.2816
"""of a standard normal, what 90 % stay below"""


@dataclass(frozen=True)
class Sampling:
    runs: int = 1000
    seed: int = 0
    shape: float = 1.0
    """of a Weibull distribution: 1 has no memory, below 1 failures come in clusters"""
    spares: int | None = None
    """nodes at hand; None: there is always one"""
    repair_s: float = 0.0
    """until a node that failed is a spare again"""
    takes_node: float = 1.0
    """share of failures after which a node is missing"""


@dataclass(frozen=True)
class SampledRuns:
    """One value for each run."""

    seconds: Numbers
    failures: Ints
    waiting_s: Numbers
    """for a node, none being left"""
    stops_s: Numbers
    """of the first run alone: a row for each failure, when it came and when the run went on"""

    def spread(self, step_range: tuple[float, float] | None = None, seed: int = 0) -> tuple[float, float, float]:
        """Seconds that 10, 50 and 90 % of the runs need at most. `step_range`: shares of their prediction between which
        80 % of measured steps lay. One error holds for a whole run: each draws its own, log-normal with two widths.
        """
        seconds = self.seconds
        if step_range is not None:
            drawn = np.random.default_rng(seed).standard_normal(len(seconds)) / Z_90
            low, high = np.log1p(np.minimum(step_range[0], 0.0)), np.log1p(np.maximum(step_range[1], 0.0))
            seconds = seconds * np.exp(np.where(drawn < 0, -drawn * low, drawn * high))
        first, middle, last = np.quantile(seconds, (0.1, 0.5, 0.9))
        return float(first), float(middle), float(last)


def sample(
    work_s: float, interval_s: float, saves: Saves, restart: Restart, between_s: float, how: Sampling
) -> SampledRuns:
    """Runs of `work_s` useful seconds. Each turn of the loop takes every unfinished run to its next failure."""
    draw = np.random.default_rng(how.seed)
    segment, whole = interval_s + saves.stall_s, work_s / interval_s
    seconds, waited = np.zeros(how.runs), np.zeros(how.runs)
    saved, failures = np.zeros(how.runs), np.zeros(how.runs, dtype=np.int64)
    back = np.full((how.runs, max(how.spares or 0, 1)), -np.inf)
    """when the nodes that are away return, in turn"""
    lost, recovery = np.zeros(how.runs, dtype=np.int64), np.zeros(how.runs)
    active = np.arange(how.runs)
    stops: list[tuple[float, float]] = []
    scale = between_s / gamma(1.0 + 1.0 / how.shape) if not isinf(between_s) else np.inf
    while len(active):
        until = scale * draw.weibull(how.shape, len(active)) if not isinf(between_s) else np.full(len(active), np.inf)
        need = recovery[active] + (whole - saved[active]) * segment
        ends = until >= need
        seconds[active] += np.where(ends, need, until)
        landed = np.floor((until - recovery[active] - saves.lands_s) / segment)
        going = active[~ends]
        saved[going] += np.maximum(landed[~ends], 0.0)
        failures[going] += 1
        failed_s = float(seconds[0])
        seconds[going] += restart.down_s
        if how.spares is not None:
            lacks = going[draw.random(len(going)) < how.takes_node]
            wait = _wait_for_node(seconds, lost, back, lacks, how)
            lost[lacks] += 1
            waited[lacks] += wait
            seconds[lacks] += wait
        if 0 in going[:1]:
            stops.append((failed_s, float(seconds[0])))
        recovery[going] = restart.recovery_s
        active = going
    return SampledRuns(seconds, failures, waited, np.array(stops).reshape(-1, 2))


def _wait_for_node(seconds: Numbers, lost: Ints, back: Numbers, lacks: Ints, how: Sampling) -> Numbers:
    """Each node that fails is away for the repair; the one that left longest ago returns first."""
    if how.spares == 0:
        return np.full(len(lacks), how.repair_s)
    turn = lost[lacks] % back.shape[1]
    wait: Numbers = np.maximum(back[lacks, turn] - seconds[lacks], 0.0)
    back[lacks, turn] = seconds[lacks] + wait + how.repair_s
    return wait
