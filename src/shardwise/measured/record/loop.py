"""The record of a loop that somebody else wrote: two lines around its data loader."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter, thread_time, time
from typing import Any, TypeVar

from shardwise.measured.record.machine import (
    cpu_seconds,
    head_here,
    held_bytes,
    on_cuda,
    peak_bytes,
    pressure_seconds,
    queued_seconds,
)
from shardwise.measured.record.step import RunEnd, RunEvent, StepRecord
from shardwise.measured.record.writer import RecordWriter

Batch = TypeVar("Batch")


class StepClock:
    """Seconds of the step under way, by what they went to."""

    def __init__(self) -> None:
        self.parts: dict[str, float] = {}
        self.axes: dict[str, float] = {}
        self.begun, self.cpu, self.thread = perf_counter(), cpu_seconds(), thread_time()
        self.pressure, self.queued = pressure_seconds(), queued_seconds()

    def add(self, part: str, seconds: float) -> None:
        self.parts[part] = self.parts.get(part, 0.0) + seconds

    def taken(self, step: int, **more: Any) -> StepRecord:
        """The step that ends now; the next begins."""
        now, cpu, thread = perf_counter(), cpu_seconds(), thread_time()
        pressure, queued = pressure_seconds(), queued_seconds()
        found = StepRecord(
            step=step, at_s=time(), step_s=now - self.begun, cpu_s=cpu - self.cpu, axes_s=self.axes or None,
            thread_s=thread - self.thread, pressure_s=_passed(self.pressure, pressure),
            queued_s=_passed(self.queued, queued),
            peak_bytes=peak_bytes(), held_bytes=held_bytes(), **(self.parts | more),
        )  # fmt: skip
        self.parts, self.axes = {}, {}
        self.begun, self.cpu, self.thread, self.pressure, self.queued = now, cpu, thread, pressure, queued
        return found


def _passed(before: float | None, now: float | None) -> float | None:
    return None if before is None or now is None else max(now - before, 0.0)


class Recorder:
    """Writes `folder/rank-00000.jsonl` and so on. On a GPU the host's clock sees no kernel: there a step's time, the
    wait for data, checkpoints and memory are right, and communication is not measured."""

    def __init__(self, folder: str | Path, *, program: str = "", checkpoints: str = "", first_step: int = 1) -> None:
        self.folder, self.program, self.checkpoints, self.step = Path(folder), program, checkpoints, first_step - 1
        self._writer: RecordWriter | None = None
        self.clock = StepClock()

    @property
    def writer(self) -> RecordWriter:
        """Made late: ranks know their number when they have met."""
        if self._writer is None:
            head = head_here(program=self.program, checkpoints=self.checkpoints, first_step=self.step + 1)
            self._writer = RecordWriter(self.folder, head.rank)
            self._writer.head(head)
        return self._writer

    def steps(self, batches: Iterable[Batch]) -> Iterator[Batch]:
        """The batches, each a step; the time to get one is the wait for data."""
        source = iter(batches)
        self.begin()
        try:
            while True:
                with self.during("data_s"):
                    try:
                        batch = next(source)
                    except StopIteration:
                        break
                yield batch
                self.end_step()
        except BaseException as error:
            if not isinstance(error, GeneratorExit):
                self.end(f"{type(error).__name__}: {str(error)[:300]}")
            raise
        self.end()

    def begin(self) -> None:
        self.clock = StepClock()
        _ = self.writer

    @contextmanager
    def during(self, part: str, axis: str = "") -> Iterator[None]:
        """Around what is no computing: data_s, save_s, other_s, or comm_s with the axis of a collective."""
        start = perf_counter()
        try:
            yield
        finally:
            seconds = perf_counter() - start
            self.clock.add(part, seconds)
            if axis:
                self.clock.axes[axis] = self.clock.axes.get(axis, 0.0) + seconds

    def saving(self) -> Any:
        """`with recorder.saving(): torch.save(...)`"""
        return self.during("save_s")

    def communicating(self, axis: str = "dp") -> Any:
        """`with recorder.communicating("dp"): dist.all_reduce(...)`; useless on a GPU, where calls return at once."""
        return self.during("other_s" if on_cuda() else "comm_s", "" if on_cuda() else axis)

    def end_step(self, **more: Any) -> None:
        self.step += 1
        self.writer.step(self.clock.taken(self.step, **more))

    def event(self, what: str, text: str = "", seconds: float | None = None) -> None:
        self.writer.event(RunEvent(what=what, at_s=time(), step=self.step, text=text, seconds=seconds))

    def end(self, why: str = "") -> None:
        if self._writer is not None:
            self._writer.end(RunEnd(at_s=time(), step=self.step, why=why))
            self._writer.close()
