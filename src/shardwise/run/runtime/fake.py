"""The same program on a process group that pretends and on tensors without values: any rank of a world of any size.

Messages are recorded, not sent; tensors have shapes and dtypes but no memory, so a large model fits. What follows from
values cannot be tried: losses mean nothing, and routing is forced to be even.
"""

from collections.abc import Sequence
from time import perf_counter

import torch
from msgspec.structs import replace
from torch import Tensor

from shardwise.run.runtime.fake_world import fake_world
from shardwise.run.runtime.parallel.pipeline import Batch
from shardwise.run.runtime.tracked import Tracker
from shardwise.run.runtime.train.engine import TrainingEngine
from shardwise.run.runtime.train.optimizer import OptimizerSettings, moment_names
from shardwise.run.runtime.train.record import Recording, memory_by_kind
from shardwise.run.runtime.train.task import Task, TrainingOrder, checked

CPU = torch.device("cpu")


def fake_recordings(order: TrainingOrder, ranks: Sequence[int] | None = None) -> list[Recording]:
    """One step of these ranks, or of one of each pipeline stage: the others of a stage do the same."""
    task = checked(order.task)
    if any(kind.experts for kind in task.model.kinds):
        task = replace(task, even_routing=True)
    world = task.policy.gpus
    for rank in ranks or ():
        if not 0 <= rank < world:
            raise ValueError(f"rank: {rank} is not among {world:,} ranks; write 0 to {world - 1}")
    of_stages = range(0, world, world // task.policy.pp)
    return [_recorded(task, order.settings.optimizer, rank) for rank in (of_stages if ranks is None else ranks)]


def _recorded(task: Task, settings: OptimizerSettings, rank: int) -> Recording:
    names = moment_names(settings)
    with fake_world(rank, task.policy.gpus, values=False):
        engine, tracker = TrainingEngine(task, CPU, settings), Tracker()
        engine.world.comm.events.clear()
        start = perf_counter()
        with tracker.watching(engine.context.cut.later):
            engine.accumulate(_tokens(engine))
        engine.optimizer.pretend_states(names)
        engine.optimizer.move_matrices(engine.locals(), 0.0)
        with engine.world.comm.during("step"):
            for sync in engine.syncs:
                sync.gather()
                sync.clear()
        return Recording(
            rank=rank, stage=engine.world.stage, start_s=start, step_s=perf_counter() - start,
            events=list(engine.world.comm.events), done=list(engine.pipeline.done),
            memory_bytes=memory_by_kind(engine, tracker),
        )  # fmt: skip


def _tokens(engine: TrainingEngine) -> Batch:
    shape = (len(engine.context.positions), engine.task.policy.micro_batch)

    def micro_batch(_: int) -> tuple[Tensor, Tensor]:
        return torch.zeros(shape, dtype=torch.int64), torch.zeros(shape, dtype=torch.int64)

    return micro_batch
