"""What the ranks of a run wrote of themselves, side by side."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from shardwise.arrays import Floats
from shardwise.measured.record.step import RecordHead, RunEnd, RunEvent, StepRecord


@dataclass(frozen=True)
class RankRecords:
    heads: tuple[RecordHead, ...]
    """one for each time it began"""
    steps: tuple[StepRecord, ...]
    events: tuple[RunEvent, ...]
    end: RunEnd | None
    """of the last beginning; None: it goes on, or was killed"""

    @property
    def head(self) -> RecordHead:
        return self.heads[-1]

    @property
    def last_at_s(self) -> float:
        """When it gave its last sign."""
        ended = [self.end.at_s] if self.end else []
        return max([self.head.at_s, *(step.at_s for step in self.steps[-1:]), *ended])

    @property
    def last_step(self) -> int:
        return self.steps[-1].step if self.steps else self.head.first_step - 1


@dataclass(frozen=True)
class RunRecords:
    name: str
    ranks: dict[int, RankRecords]
    launcher: tuple[RunEvent, ...] = ()

    @property
    def head(self) -> RecordHead:
        return self.ranks[min(self.ranks)].head

    @property
    def events(self) -> list[RunEvent]:
        found = [event for rank in self.ranks.values() for event in rank.events]
        return sorted([*found, *self.launcher], key=lambda event: event.at_s)

    @property
    def ended(self) -> bool:
        """All of them came to an end that they wrote themselves."""
        return all(rank.end is not None for rank in self.ranks.values())

    @property
    def done(self) -> bool:
        return self.ended and not any(rank.end and rank.end.why for rank in self.ranks.values())

    @property
    def last_at_s(self) -> float:
        return max(rank.last_at_s for rank in self.ranks.values())


@dataclass(frozen=True)
class StepGrid:
    """Steps that all ranks made, after the last beginning: one row a rank, one column a step."""

    ranks: tuple[int, ...]
    places: tuple[dict[str, int], ...]
    step: NDArray[np.int64]
    step_s: Floats
    own_s: Floats
    """what a rank did by itself, before others could make it wait"""
    data_s: Floats
    comm_s: Floats
    """NaN where it was not measured, as everywhere here"""
    hidden_s: Floats
    save_s: Floats
    cpu_s: Floats
    thread_s: Floats
    pressure_s: Floats
    queued_s: Floats
    held_bytes: Floats
    axes_s: dict[str, Floats] = field(default_factory=dict)
    experts: tuple[tuple[list[list[int]] | None, ...], ...] = ()
    """of each rank, step by step"""
    devices: tuple[str, ...] = ()

    @property
    def count(self) -> int:
        return len(self.step)

    def worked_s(self, row: int) -> Floats:
        """What a rank did by itself, on a CPU without standing in line for a processor: others may use it too."""
        own: Floats = self.own_s[row]
        if self.devices[row] != "cpu":
            return own
        # it may have stood in line on its way out of messages too, which is no part of its own work
        without = np.maximum(own - np.nan_to_num(self.processor_s[row]), 0.0)
        return np.asarray(own - np.minimum(np.nan_to_num(self.queued_s[row]), without))

    @property
    def processor_s(self) -> Floats:
        """Seconds of the processor for a rank's own work; of a record that has all threads together, as many as its own
        work took."""
        return np.asarray(np.where(np.isnan(self.thread_s), np.minimum(self.cpu_s, self.own_s), self.thread_s))

    def peers(self, row: int) -> list[int]:
        """Rows of the other ranks that do the same work: those of its pipeline stage."""
        stage = self.places[row].get("pp", 0)
        return [other for other in range(len(self.ranks)) if other != row and self.places[other].get("pp", 0) == stage]

    def after(self, first: int) -> "StepGrid":
        """Without the first so many steps."""
        return StepGrid(
            self.ranks, self.places, self.step[first:], self.step_s[:, first:], self.own_s[:, first:],
            self.data_s[:, first:], self.comm_s[:, first:], self.hidden_s[:, first:], self.save_s[:, first:],
            self.cpu_s[:, first:], self.thread_s[:, first:], self.pressure_s[:, first:], self.queued_s[:, first:],
            self.held_bytes[:, first:],
            {a: v[:, first:] for a, v in self.axes_s.items()}, tuple(row[first:] for row in self.experts), self.devices,
        )  # fmt: skip


def grid_of(run: RunRecords) -> StepGrid | None:
    """None where no step was made by all."""
    rows = {number: {step.step: step for step in _last_try(rank)} for number, rank in sorted(run.ranks.items())}
    common = sorted(set.intersection(*(set(steps) for steps in rows.values()))) if rows else []
    if not common:
        return None
    steps = [[rows[number][step] for step in common] for number in rows]

    def table(name: str) -> Floats:
        values = [[getattr(step, name) for step in row] for row in steps]
        return np.array([[np.nan if v is None else v for v in row] for row in values], dtype=np.float64)

    axes = sorted({axis for row in steps for step in row for axis in step.axes_s or {}})
    return StepGrid(
        ranks=tuple(rows), places=tuple(run.ranks[number].head.places for number in rows),
        step=np.array(common, dtype=np.int64), step_s=table("step_s"), own_s=table("own_s"), data_s=table("data_s"),
        comm_s=table("comm_s"), hidden_s=table("hidden_s"), save_s=table("save_s"), cpu_s=table("cpu_s"),
        thread_s=table("thread_s"), pressure_s=table("pressure_s"), queued_s=table("queued_s"),
        held_bytes=table("held_bytes"),
        axes_s={axis: np.array([[(s.axes_s or {}).get(axis, 0.0) for s in row] for row in steps]) for axis in axes},
        experts=tuple(tuple(step.experts for step in row) for row in steps),
        devices=tuple(run.ranks[number].head.device for number in rows),
    )  # fmt: skip


def _last_try(rank: RankRecords) -> Sequence[StepRecord]:
    """After the step number last went back."""
    begin = 0
    for place in range(1, len(rank.steps)):
        if rank.steps[place].step <= rank.steps[place - 1].step:
            begin = place
    return rank.steps[begin:]
