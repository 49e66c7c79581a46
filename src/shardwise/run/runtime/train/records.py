"""Where the time of this rank's steps went, written while it trains, for `watch` and `doctor`."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter, time

from msgspec.structs import replace
from torch import Tensor

from shardwise.measured.record.loop import StepClock
from shardwise.measured.record.machine import head_here
from shardwise.measured.record.step import RecordHead, RunEnd, RunEvent
from shardwise.measured.record.writer import RecordWriter
from shardwise.run.runtime.parallel.pipeline import Batch
from shardwise.run.runtime.parallel.vocabulary import Targets
from shardwise.run.runtime.train.engine import TrainingEngine
from shardwise.run.runtime.train.task import TrainingOrder

MOST_COUNTS = 4096
"""numbers of a step's expert counts; of larger models all layers are one"""


class RankRecorder:
    def __init__(self, folder: Path, head: RecordHead, engine: TrainingEngine) -> None:
        self.writer, self.head, self.engine = RecordWriter(folder, head.rank), head, engine
        self.step = 0
        self.clock = StepClock()
        self.on_device = engine.world.device.type == "cuda"
        engine.context.visits.kept = True

    def begun(self, step: int) -> None:
        """After `step`, from which it resumes, or 0."""
        self.step = step
        self.writer.head(replace(self.head, first_step=step + 1))
        if step:
            self.event("resumed", step, f"after step {step}")
        self.engine.world.comm.blocked.clear()
        self.clock = StepClock()

    def timed(self, batch: Batch) -> Batch:
        def micro_batch(index: int) -> tuple[Tensor, Targets]:
            start = perf_counter()
            found = batch(index)
            self.clock.add("data_s", perf_counter() - start)
            return found

        return micro_batch

    def step_done(self, loss: float) -> None:
        comm = self.engine.world.comm
        self.step += 1
        more: dict[str, object] = {"loss": loss, "experts": self._experts()}
        if not self.on_device:
            # a GPU's queue hides from the host how long a message took
            stood = sum(comm.blocked.values())
            under_way = sum(event.end_s - event.start_s for event in comm.events)
            self.clock.axes = dict(comm.blocked)
            more |= {"comm_s": stood, "hidden_s": max(under_way - stood, 0.0)}
        comm.blocked.clear()
        self.writer.step(self.clock.taken(self.step, **more))

    def _experts(self) -> list[list[int]] | None:
        counts = self.engine.context.visits.taken()
        if not counts:
            return None
        model = self.engine.task.model
        layers = sum(model.kinds[kind].experts is not None for kind in model.pattern)
        rows = len(counts) if len(counts) * len(counts[0]) <= MOST_COUNTS and self._in_order(len(counts)) else 1
        rows = min(rows, max(layers, 1))
        summed = [sum(counts[row::rows][1:], counts[row]) for row in range(rows)]
        return [[int(value) for value in row.tolist()] for row in summed]

    def _in_order(self, calls: int) -> bool:
        """Routers are asked layer by layer, micro-batch after micro-batch; recompute asks them again, backwards."""
        task = self.engine.task
        return task.policy.recompute == "none" and task.chunks == 1 and task.policy.pp == 1 and calls > 0

    @contextmanager
    def saving(self, step: int) -> Iterator[None]:
        start = perf_counter()
        yield
        seconds = perf_counter() - start
        self.clock.add("save_s", seconds)
        if self.head.rank == 0:
            self.event("saved", step, seconds=seconds)

    @contextmanager
    def other(self) -> Iterator[None]:
        start = perf_counter()
        yield
        self.clock.add("other_s", perf_counter() - start)
        self.engine.world.comm.blocked.clear()

    def event(self, what: str, step: int, text: str = "", seconds: float | None = None) -> None:
        self.writer.event(RunEvent(what=what, at_s=time(), step=step, rank=self.head.rank, text=text, seconds=seconds))

    def ended(self, why: str, unsaved: str = "") -> None:
        """`unsaved`: what the last checkpoint failed of."""
        if unsaved:
            self.event("save failed", self.step, unsaved)
        self.writer.end(RunEnd(at_s=time(), step=self.step, why=why))
        self.writer.close()

    def lost(self, why: str) -> None:
        """Others are gone or silent: what the flight recorder holds goes beside the record."""
        dump_collectives(self.writer.path.parent, self.head.rank)
        self.event("lost", self.step + 1)
        self.ended(why)


def recorder_of(order: TrainingOrder, engine: TrainingEngine) -> RankRecorder | None:
    settings, world = order.settings, engine.world
    if not settings.records:
        return None
    places = {"pp": world.stage, "dp": world.data_index, "tp": world.tp.index, "cp": world.cp.index,
              "ep": world.ep.index}  # fmt: skip
    told = settings.expected
    head = head_here(
        program="shardwise run", places=places, checkpoints=settings.checkpoints, device=world.device.type,
        predicted_step_s=told.predicted_step_s, predicted_low_s=told.predicted_low_s,
        predicted_high_s=told.predicted_high_s, predicted_peak_bytes=told.predicted_peak_bytes,
    )  # fmt: skip
    return RankRecorder(Path(settings.records), head, engine)


def dump_collectives(folder: Path, rank: int) -> None:
    """What this rank's flight recorder holds, beside its record."""
    from torch._C import _distributed_c10d as recorded

    dump: Callable[[bool, bool], bytes] | None = getattr(recorded, "_dump_fr_trace_json", None)
    if dump is None:
        return
    try:
        content = dump(True, False)
        (folder / f"flight-recorder-{rank:05}.json").write_bytes(
            content if isinstance(content, bytes) else str(content).encode()
        )
    except (OSError, RuntimeError):
        return


def keep_collectives(records: str) -> None:
    """Before ranks meet: torch's flight recorder keeps the last messages, where the user has not said how many. The
    watchdog of NCCL ends a process whose message is late; it writes them beside the records before."""
    if records:
        beside = str(Path(records).absolute() / "flight-recorder-rank-")
        for name, value in (
            ("TORCH_FR_BUFFER_SIZE", "2000"), ("TORCH_NCCL_DUMP_ON_TIMEOUT", "1"), ("TORCH_FR_DUMP_TEMP_FILE", beside),
        ):  # fmt: skip
            os.environ.setdefault(name, value)
