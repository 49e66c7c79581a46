"""All that is wrong with the steps of a run, what ends it and then the largest loss first; and what only looks so."""

from dataclasses import dataclass

import numpy as np

from shardwise.measured.diagnose.causes import Cause
from shardwise.measured.diagnose.health.parts import (
    growing_memory,
    hot_experts,
    slow_network,
    stopped_to_save,
    waiting_for_data,
)
from shardwise.measured.diagnose.health.ranks import slow_ranks
from shardwise.measured.diagnose.health.windows import LASTS, crowded, rise_of, settled
from shardwise.measured.diagnose.records import RunRecords, StepGrid, grid_of

SHIFT = 0.1
"""a step so much slower than before, for good, is named even if nothing explains it (Greyhound's verified change)"""
SPREADS = 3.0
"""and by so many times the spread of its steps"""
OVER_PEAK = 1.05
"""times the predicted peak: above it memory is named"""
TAKEN = 0.7
"""of its wall time that a rank on the CPU computes: below it others had the processor"""
EXPLAINS = 0.5
"""of a slower step: so much more time in line for a processor explains it"""


@dataclass(frozen=True)
class Health:
    grid: StepGrid | None
    """without the first steps; None: too few"""
    causes: tuple[Cause, ...]
    """what ends the run, then the largest loss first"""
    remarks: tuple[Cause, ...] = ()
    """seen, and nothing the run can be blamed for"""

    @property
    def step_s(self) -> float | None:
        return None if self.grid is None else float(np.median(self.grid.step_s.max(axis=0)[-4 * LASTS :]))


def health_of(run: RunRecords) -> Health:
    grid = grid_of(run)
    if grid is None or grid.count < 2:
        return Health(None, ())
    grid = settled(grid)
    found = [*waiting_for_data(grid), *stopped_to_save(grid), *growing_memory(grid), *hot_experts(grid)]
    if not np.isnan(grid.comm_s).any():
        codes = {cause.code for cause in found}
        # a rank that waits for data is late for that reason, and one with a hot expert has more to do
        found += slow_ranks(grid) if not codes & {"hot_expert"} else []
        found += slow_network(grid)
    found += _over_prediction(run, grid)
    remarks = []
    if not any(cause.seconds > 0 for cause in found):
        moved = _slower_since(grid)
        busy = moved is not None and (
            _processor_taken(grid) or _crowded_since(grid, moved) or _stood_in_line(grid, moved)
        )
        remarks += [_busy_processor(grid, moved)] if moved is not None and busy else []
        found += [moved] if moved is not None and not busy else []
    return Health(grid, _in_order(found), tuple(remarks))


def _in_order(found: list[Cause]) -> tuple[Cause, ...]:
    """The largest loss first; before all else memory that grows: it ends the run, and asking for new memory in every
    step makes its rank late besides."""
    return tuple(sorted(found, key=lambda cause: (cause.code != "memory_leak", -cause.seconds)))


def _over_prediction(run: RunRecords, grid: StepGrid) -> list[Cause]:
    head, found = run.head, []
    step = float(np.median(grid.step_s.max(axis=0)[-2 * LASTS :]))
    if head.predicted_high_s and grid.count >= LASTS and step > head.predicted_high_s:
        told = head.predicted_step_s or head.predicted_high_s
        found.append(Cause(
            code="level", seconds=step, predicted_s=told,
            evidence=f"{step / told - 1:+.1%} above the prediction, outside its band",
        ))  # fmt: skip
    peak = max((step.peak_bytes or 0 for rank in run.ranks.values() for step in rank.steps[-1:]), default=0)
    if head.predicted_peak_bytes and peak > OVER_PEAK * head.predicted_peak_bytes:
        found.append(Cause(
            code="memory", seconds=0.0,
            evidence=f"the peak is {peak / head.predicted_peak_bytes - 1:+.1%} off the prediction",
        ))  # fmt: skip
    return found


def _slower_since(grid: StepGrid) -> Cause | None:
    steps = grid.step_s.max(axis=0)
    rise = rise_of(steps, SHIFT * float(np.median(steps)))
    if rise is None:
        return None
    early = steps[: rise.place]
    spread = 1.4826 * float(np.median(np.abs(early - np.median(early))))
    if rise.after - rise.before < SPREADS * spread:
        return None
    return Cause(
        code="shift", seconds=rise.after - rise.before, where=f"from step {grid.step[rise.place]:,} on",
        since=int(grid.step[rise.place]),
        evidence=f"the level moved {rise.factor - 1:+.0%} there and stayed; no rank, axis, data or save explains it",
    )  # fmt: skip


def _processor_taken(grid: StepGrid) -> bool:
    """On the CPU: while ranks did their own work they did not have the processor all the time."""
    if any(device != "cpu" for device in grid.devices) or np.isnan(grid.cpu_s).any():
        return False
    return bool(np.median(grid.cpu_s / np.maximum(grid.own_s, 1e-9)) < TAKEN)


def _crowded_since(grid: StepGrid, moved: Cause) -> bool:
    return crowded(grid, int(np.searchsorted(grid.step, moved.since or 0)), moved.seconds)


def _stood_in_line(grid: StepGrid, moved: Cause) -> bool:
    """On the CPU: the ranks of a step, of which some waits for another, stand in line for a processor that much
    longer."""
    if any(device != "cpu" for device in grid.devices) or np.isnan(grid.queued_s).any():
        return False
    place = int(np.searchsorted(grid.step, moved.since or 0))
    before, after = (float(np.median(part.sum(axis=0))) for part in np.split(grid.queued_s, [place], axis=1))
    return after - before > EXPLAINS * moved.seconds


def _busy_processor(grid: StepGrid, moved: Cause) -> Cause:
    share = float(np.median(grid.cpu_s / np.maximum(grid.own_s, 1e-9)))
    waited = float(np.median(np.minimum(grid.pressure_s / np.maximum(grid.step_s, 1e-9), 1.0)))
    told = "" if np.isnan(waited) else f"; {waited:.0%} of it someone on the machine waited for one"
    return Cause(
        code="contention", seconds=moved.seconds, where=moved.where, since=moved.since,
        evidence=f"the ranks had a processor for {share:.0%} of the time they worked{told}",
    )  # fmt: skip
