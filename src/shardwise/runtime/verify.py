"""A run held against its prediction: messages of a step, memory by kind, time."""

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from time import perf_counter

import torch
import torch.distributed as dist
from msgspec import Struct

from shardwise.estimate.memory import memory_of
from shardwise.runtime.parallel.comm import CONTROL
from shardwise.runtime.tracked import Tracker
from shardwise.runtime.train.fork import forked
from shardwise.runtime.train.loop import Trainer
from shardwise.runtime.train.record import Recording, collected, memory_by_kind
from shardwise.runtime.train.task import Order, Task, checked
from shardwise.spec.policy import Policies
from shardwise.work import work_of
from shardwise.work.messages import Piece, messages, piecewise

Key = tuple[int, str, str, str]
"""pipeline stage, axis, operation, phase"""
MEMORY_TOLERANCE = 0.02


class Messages(Struct, frozen=True, kw_only=True):
    """Of the recorded ranks of one pipeline stage, in one step."""

    stage: int
    axis: str
    op: str
    phase: str
    predicted_count: float
    measured_count: float
    predicted_bytes: float
    measured_bytes: float

    @property
    def equal(self) -> bool:
        return self.predicted_count == self.measured_count and self.predicted_bytes == self.measured_bytes


class Held(Struct, frozen=True, kw_only=True):
    """Bytes of one kind on a rank of a stage: the mean, since routing gives some ranks more tokens than others."""

    stage: int
    kind: str
    predicted_bytes: float
    measured_bytes: float

    @property
    def error(self) -> float:
        if not self.predicted_bytes:
            return 0.0 if not self.measured_bytes else float("inf")
        return self.measured_bytes / self.predicted_bytes - 1.0


class Verified(Struct, frozen=True, kw_only=True):
    messages: tuple[Messages, ...]
    memory: tuple[Held, ...]
    step_s: float
    loss: float
    control_count: int
    """messages that steer the loop, which nothing predicts"""
    control_bytes: int

    @property
    def messages_equal(self) -> bool:
        return all(row.equal for row in self.messages)

    @property
    def memory_error(self) -> float:
        return max((abs(row.error) for row in self.memory), default=0.0)

    @property
    def holds(self) -> bool:
        return self.messages_equal and self.memory_error <= MEMORY_TOLERANCE


def predicted_messages(task: Task, ranks_of: Mapping[int, int]) -> dict[Key, tuple[float, float]]:
    """(count, bytes) of so many ranks of each stage; stages that are not named are left out."""
    policy = task.policy
    work = piecewise(task.model, task.job, policy, task.stack)
    home = {task.stage(r, c): r for r in range(policy.pp) for c in range(policy.vpp)}
    counts: Counter[Key] = Counter()
    sizes: Counter[Key] = Counter()
    for stage, ranks in ranks_of.items():
        for chunk, recomputed in enumerate(task.recomputed(stage)):
            index = task.stage(stage, chunk)
            piece = Piece(
                index, recomputed, sends_on=home.get(index + 1, stage) != stage,
                sends_back=home.get(index - 1, stage) != stage,
            )  # fmt: skip
            for sent in messages(work, piece, staged=policy.pp > 1):
                key = (stage, sent.axis, sent.op, sent.phase)
                counts[key] += sent.count * ranks  # type: ignore[assignment]
                sizes[key] += sent.count * sent.bytes * ranks  # type: ignore[assignment]
    return {key: (counts[key], sizes[key]) for key in counts}


def measured_messages(recordings: list[Recording]) -> dict[Key, tuple[float, float]]:
    counts: Counter[Key] = Counter()
    sizes: Counter[Key] = Counter()
    for recording in recordings:
        for event in recording.events:
            if event.axis != CONTROL:
                key = (recording.stage, event.axis, event.op, event.phase)
                counts[key] += 1
                sizes[key] += event.bytes
    return {key: (float(counts[key]), float(sizes[key])) for key in counts}


def compared_memory(task: Task, recordings: list[Recording]) -> list[Held]:
    memory = memory_of(work_of(task.model, task.job, Policies.of([task.policy]), task.stack, every_stage=True))
    rows = []
    for stage in sorted({r.stage for r in recordings}):
        here = [r.memory_bytes for r in recordings if r.stage == stage]
        for kind in here[0]:
            predicted = float(memory.kinds[kind][0, stage])
            rows.append(
                Held(
                    stage=stage,
                    kind=kind,
                    predicted_bytes=predicted,
                    measured_bytes=sum(m[kind] for m in here) / len(here),
                )
            )
    return rows


def verified(task: Task, recordings: list[Recording], loss: float) -> Verified:
    predicted = predicted_messages(task, Counter(r.stage for r in recordings))
    measured = measured_messages(recordings)
    none = (0.0, 0.0)
    rows = []
    for key in sorted(set(predicted) | set(measured)):
        stage, axis, op, phase = key
        (pc, pb), (mc, mb) = predicted.get(key, none), measured.get(key, none)
        rows.append(
            Messages(stage=stage, axis=axis, op=op, phase=phase, predicted_count=pc, measured_count=mc,
                     predicted_bytes=pb, measured_bytes=mb)
        )  # fmt: skip
    control = [e for r in recordings for e in r.events if e.axis == CONTROL]
    return Verified(
        messages=tuple(rows), memory=tuple(compared_memory(task, recordings)), loss=loss,
        step_s=max(r.step_s for r in recordings), control_count=len(control),
        control_bytes=sum(e.bytes for e in control),
    )  # fmt: skip


def recorded_step(order: Order, device: torch.device, *, alone: bool = False) -> tuple[list[Recording], float]:
    """Trains all but the last step, then records that one; everyone's recordings, on every rank, or only the own."""
    trainer = Trainer(order, device)
    for _ in range(order.settings.steps - 1):
        trainer.one_step()
    engine, tracker = trainer.engine, Tracker()
    engine.world.comm.events.clear()
    engine.pipeline.done.clear()
    start = perf_counter()
    with tracker.watching(engine.context.cut.later):
        line = trainer.one_step()
    mine = Recording(
        rank=engine.world.rank, stage=engine.world.stage, start_s=start, step_s=line.step_s,
        events=list(engine.world.comm.events), done=list(engine.pipeline.done),
        memory_bytes=memory_by_kind(engine, tracker),
    )  # fmt: skip
    return [mine] if alone else collected(mine), line.loss


def fake_verify(order: Order) -> tuple[Verified, list[Recording]]:
    """One rank of each pipeline stage of a world of any size, in this process: messages are recorded, not sent.

    What arrives is arbitrary, so losses mean nothing, and routing, which follows from values, cannot be tried."""
    task = checked(order.task)
    if any(kind.experts for kind in task.model.kinds):
        raise ValueError("fake: experts are chosen by values, which a fake world does not have; leave --fake away")
    recordings = []
    ranks = task.policy.gpus // task.policy.pp
    for stage in range(task.policy.pp):
        with fake_world(stage * ranks, task.policy.gpus):
            recordings += recorded_step(order, torch.device("cpu"), alone=True)[0]
    return verified(task, recordings, float("nan")), recordings


@contextmanager
def fake_world(rank: int, ranks: int) -> Iterator[None]:
    """torch's process group that pretends: this process is one of so many ranks."""
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", rank=rank, world_size=ranks, store=FakeStore())
    try:
        yield
    finally:
        dist.destroy_process_group()


def verify(order: Order) -> tuple[Verified, list[Recording]]:
    """On forked gloo ranks of this machine."""
    checked(order.task)
    if order.task.policy.gpus == 1:
        recordings, loss = recorded_step(order, torch.device("cpu"))
    else:
        answers = forked(order.task.policy.gpus, lambda _: recorded_step(order, torch.device("cpu")))
        recordings, loss = answers[0]
    return verified(order.task, recordings, loss), recordings
