"""Steps of a training of the runtime, with when each of its messages began and ended on this rank."""

import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from shardwise.plugins.sync._comm import Handle
from shardwise.plugins.sync._group import GroupComm, _Reducing
from shardwise.run.runtime.parallel.comm import CONTROL, CollectiveHandle, RankComm, RankGroup
from shardwise.run.runtime.train.loop import Trainer
from shardwise.run.runtime.train.optimizer import OptimizerSettings
from shardwise.run.runtime.train.quiet import quiet
from shardwise.run.runtime.train.task import Task, TrainingOrder, TrainingSettings
from shardwise_lab.job_told import WARM_UP
from shardwise_lab.order import JobMessage, JobStep, LabWorld
from shardwise_lab.ranks.collectives import together


def job_steps(number: int, world: LabWorld) -> list[JobStep]:
    assert world.job is not None
    rank, found = dist.get_rank(), []
    synced = _strategys(rank) if world.job.policy.sync else []
    trainer = _trainer(world)
    comm = trainer.engine.world.comm
    between = _between_stages(comm, rank)
    with quiet():
        for _ in range(WARM_UP):
            trainer.one_step()
        together()
        for turn in range(world.steps):
            comm.events.clear()
            between.clear()
            synced.clear()
            trainer.engine.pipeline.done.clear()
            start = time.monotonic()
            line = trainer.one_step()
            end = time.monotonic()
            events = [JobMessage(e.axis, f"{e.op} {e.ranks}", e.start_s, e.end_s) for e in comm.events
                      if e.axis != CONTROL and not (e.axis == "pp" and e.op == "send")]  # fmt: skip
            found.append(JobStep(
                world=number, turn=turn, rank=rank, start_s=start, end_s=end, loss=line.loss,
                messages=(*events, *between, *synced),
            ))  # fmt: skip
    return found


def _trainer(world: LabWorld) -> Trainer:
    asked = world.job
    assert asked is not None
    task = Task(
        model=asked.model, job=asked.job, policy=asked.policy, stack=asked.stack, even_routing=asked.policy.ep > 1
    )
    settings = TrainingSettings(
        steps=world.steps + WARM_UP, progress="none", optimizer=OptimizerSettings(name=asked.job.optimizer.name)
    )
    return Trainer(TrainingOrder(task=task, settings=settings), torch.device("cpu"))


def _between_stages(comm: RankComm, rank: int) -> list[JobMessage]:
    """What goes to one other rank, at both ends: a send is over for its sender when it is in a buffer, so the receiver
    says when it came."""
    found: list[JobMessage] = []
    send, receive = comm.start_send, comm.received

    def start_send(x: Tensor, to: int, group: RankGroup) -> CollectiveHandle:
        now = time.monotonic()
        found.append(JobMessage(group.axis, f"{rank}>{to}", now, now))
        return send(x, to, group)

    def received(like: Tensor, source: int, group: RankGroup) -> Tensor:
        begun = time.monotonic()
        got = receive(like, source, group)
        found.append(JobMessage(group.axis, f"{source}>{rank}", begun, time.monotonic()))
        return got

    vars(comm).update(start_send=start_send, received=received)
    return found


class _TimedWork:
    """A message of a strategy, until it is waited for."""

    def __init__(self, work: Any, note: Callable[[float, float], None]) -> None:
        self._work, self._note, self._begun = work, note, time.monotonic()

    def wait(self) -> None:
        self._work.wait()
        self._note(self._begun, time.monotonic())


def _strategys(rank: int) -> list[JobMessage]:
    """What a strategy sends, wherever its groups lie: in this process every group is timed. Members send different
    numbers of messages, so each rank tells its own."""
    found: list[JobMessage] = []
    start, mean = GroupComm._start, GroupComm._mean

    def note(begun: float, ended: float) -> None:
        found.append(JobMessage("sync", f"rank {rank}", begun, ended))

    def timed_start(comm: GroupComm, out: Any, into: Any) -> list[Any]:
        return [_TimedWork(work, note) for work in start(comm, out, into)]

    def timed_mean(comm: GroupComm, x: Tensor, via: str) -> Handle:
        handle = mean(comm, x, via)
        if isinstance(handle, _Reducing):
            handle.work = _TimedWork(handle.work, note)
        return handle

    for name, timed in (("_start", timed_start), ("_mean", timed_mean)):
        setattr(GroupComm, name, timed)
    return found
