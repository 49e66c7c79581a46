"""A run held against its prediction: messages of a step, memory by kind, time."""

from collections import Counter
from collections.abc import Sequence
from statistics import mean
from time import perf_counter

import torch
from msgspec.structs import replace

from shardwise.run.runtime.fake import fake_recordings
from shardwise.run.runtime.parallel.comm import CONTROL
from shardwise.run.runtime.parallel.world import etp_of
from shardwise.run.runtime.share_gpu import SharedGpuSeats
from shardwise.run.runtime.tracked import Tracker
from shardwise.run.runtime.train.fork import forked
from shardwise.run.runtime.train.loop import Trainer
from shardwise.run.runtime.train.record import HOST, Recording, collected, memory_by_kind
from shardwise.run.runtime.train.task import Task, TrainingOrder, checked
from shardwise.run.runtime.verification import MemoryCheck, MessageCheck, Verification
from shardwise.spec.policy import Policies, Policy
from shardwise.step.estimate.memory import memory_of
from shardwise.work import work_of
from shardwise.work.case import training_of
from shardwise.work.messages import Piece, filled_share, messages, piecewise

Key = tuple[int, str, str, str]
"""pipeline stage, axis, operation, phase"""
SHARDED = ("parameters", "gradients", "optimizer", HOST)


def predicted_messages(task: Task, ranks: Sequence[int]) -> dict[Key, tuple[float, float]]:
    """(count, bytes) of these ranks, by their stage."""
    work = piecewise(training_of(task.model, task.job, task.stack), task.policy)
    counts: Counter[Key] = Counter()
    sizes: Counter[Key] = Counter()
    for place, number in Counter(_place(task.policy, rank) for rank in ranks).items():
        stage = place[0]
        for piece in _pieces(task, *place):
            for sent in messages(work, piece):
                key = (stage, sent.axis, sent.op, sent.phase)
                counts[key] += sent.count * number  # type: ignore[assignment]
                sizes[key] += sent.count * sent.bytes * number  # type: ignore[assignment]
    # shares of messages add up to whole ones but for rounding
    return {key: (round(counts[key], 6), round(sizes[key], 3)) for key in counts}


def _place(policy: Policy, rank: int) -> tuple[int, int, int, bool]:
    """Of a rank: its pipeline stage, which of ZeRO's shards of dense parameters and of experts it has, and whether it
    is the first of its tensor-parallel ranks."""
    stage, inside = divmod(rank, policy.gpus // policy.pp)
    shards, owners = policy.shard_group or policy.dp * policy.cp, policy.ep * etp_of(policy)
    expert_ranks = max(policy.gpus // policy.pp // owners, 1)
    return (
        stage,
        inside // policy.tp % shards,
        inside // owners % min(shards, expert_ranks),
        inside % policy.tp == 0,
    )


def _pieces(task: Task, stage: int, shard_index: int, expert_shard_index: int, first_of_tp: bool) -> list[Piece]:
    policy = task.policy
    found = []
    for chunk, recomputed in enumerate(task.recomputed(stage)):
        index = task.stage(stage, chunk)
        line = [chunk] if task.both_ends else range(task.chunks)
        home = {task.stage(r, c): r for r in range(policy.pp) for c in line}
        found.append(
            Piece(
                index, recomputed, sends_on=home.get(index + 1, stage) != stage,
                sends_back=home.get(index - 1, stage) != stage, ends_together=task.ends_together,
                first_of_tp=first_of_tp, shard_index=shard_index, expert_shard_index=expert_shard_index,
            )
        )  # fmt: skip
    return found


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


def compared_memory(task: Task, recordings: list[Recording]) -> list[MemoryCheck]:
    memory, staying = (
        memory_of(work_of(training_of(task.model, task.job, task.stack), Policies.of([policy]), every_stage=True))
        for policy in (task.policy, replace(task.policy, offload="none"))
    )
    # what is in the host's memory is what would be on the device without offload
    moments = staying.kinds["optimizer"]
    work = piecewise(training_of(task.model, task.job, task.stack), task.policy)
    rows = []
    for stage in sorted({r.stage for r in recordings}):
        here = [r.memory_bytes for r in recordings if r.stage == stage]
        places = {_place(task.policy, r.rank) for r in recordings if r.stage == stage}
        fullest = max(filled_share(work, _pieces(task, *place)) for place in places)
        for kind in here[0]:
            grid = moments if kind == HOST else memory.kinds[kind]
            predicted = float(grid[0, stage]) * (fullest if kind in SHARDED else 1.0)
            rows.append(
                MemoryCheck(
                    stage=stage,
                    kind=kind,
                    predicted_bytes=predicted,
                    measured_bytes=mean([m[kind] for m in here])
                    if kind == "activations"
                    else max(m[kind] for m in here),
                )
            )
    return rows


def verified(task: Task, recordings: list[Recording], loss: float) -> Verification:
    predicted = predicted_messages(task, [r.rank for r in recordings])
    measured = measured_messages(recordings)
    none = (0.0, 0.0)
    rows = []
    for key in sorted(set(predicted) | set(measured)):
        stage, axis, op, phase = key
        (pc, pb), (mc, mb) = predicted.get(key, none), measured.get(key, none)
        rows.append(
            MessageCheck(stage=stage, axis=axis, op=op, phase=phase, predicted_count=pc, measured_count=mc,
                     predicted_bytes=pb, measured_bytes=mb)
        )  # fmt: skip
    control = [e for r in recordings for e in r.events if e.axis == CONTROL]
    return Verification(
        messages=tuple(rows), memory=tuple(compared_memory(task, recordings)), loss=loss,
        step_s=max(r.step_s for r in recordings), control_count=len(control),
        control_bytes=sum(e.bytes for e in control),
    )  # fmt: skip


def recorded_step(order: TrainingOrder, device: torch.device) -> tuple[list[Recording], float]:
    """Trains all but the last step, then records that one; everyone's recordings, on every rank."""
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
    return collected(mine), line.loss


def fake_verify(order: TrainingOrder, ranks: Sequence[int] | None = None) -> tuple[Verification, list[Recording]]:
    """Some ranks of a world of any size, in this process."""
    recordings = fake_recordings(order, ranks)
    return verified(order.task, recordings, float("nan")), recordings


def verify(order: TrainingOrder) -> tuple[Verification, list[Recording]]:
    """On forked ranks of this machine: over gloo, or where the device is cuda over NCCL on one GPU that all share."""
    checked(order.task)
    if order.settings.device == "cuda":
        answers = forked(
            order.task.policy.gpus, lambda _: recorded_step(order, torch.device("cuda", 0)), SharedGpuSeats()
        )
        recordings, loss = answers[0]
        return verified(order.task, recordings, loss), recordings
    if order.task.policy.gpus == 1:
        recordings, loss = recorded_step(order, torch.device("cpu"))
    else:
        answers = forked(order.task.policy.gpus, lambda _: recorded_step(order, torch.device("cpu")))
        recordings, loss = answers[0]
    return verified(order.task, recordings, loss), recordings
