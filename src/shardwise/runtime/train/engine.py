"""One rank of a training run: its chunks of the model, their data parallelism, the pipeline, the optimizer."""

from dataclasses import dataclass

import torch
from msgspec.structs import replace
from torch import Tensor

from shardwise.runtime.net.context import Context, context_of
from shardwise.runtime.net.decoder import Chunk, runnable
from shardwise.runtime.parallel.held import Local
from shardwise.runtime.parallel.pipeline import Batch, Pipeline
from shardwise.runtime.parallel.sync import Sync, sync_of
from shardwise.runtime.parallel.world import World, world_of
from shardwise.runtime.train.optimizer import LocalOptimizer, OptimizerSettings
from shardwise.schedules import schedules
from shardwise.spec.job import Job
from shardwise.spec.model import Model
from shardwise.spec.policy import Policies, Policy
from shardwise.spec.stack import Stack
from shardwise.work.layout import layout_of
from shardwise.work.stages import stages_of

PRECISIONS = ("fp32", "fsdp-mixed", "fsdp-mixed-reduce32")


@dataclass(frozen=True)
class Task:
    """What is trained and how it is split: a plan, less the cluster it was made for."""

    model: Model
    job: Job
    policy: Policy
    stack: Stack
    seed: int = 0
    capacity: float = 0.0

    @property
    def micro_batches(self) -> int:
        return self.job.global_batch // (self.policy.dp * self.policy.micro_batch)


def stage_ranges(task: Task) -> list[tuple[int, int]]:
    """Layers [first, end) of each of the pp x vpp pieces, as the planner cuts them."""
    pieces = task.policy.pp * task.policy.vpp
    cut = Policies.of([replace(task.policy, pp=pieces, vpp=1, schedule="1f1b")])
    layers = stages_of(task.model, layout_of(task.model, task.job, cut), task.stack, every=True).layers[0]
    ends = [int(n) for n in layers.cumsum()]
    return list(zip([0, *ends[:-1]], ends, strict=True))


class Engine:
    def __init__(self, task: Task, device: torch.device, settings: OptimizerSettings) -> None:
        check(task)
        self.task = task
        self.world: World = world_of(task.policy, device, task.job.step_tokens)
        self.context: Context = context_of(
            task.model, task.policy, self.world, task.job.seq, seed=task.seed, capacity=task.capacity
        )
        runnable(self.context)
        self.chunks = self._chunks()
        self.syncs: list[Sync] = [sync_of(c, self.world, task.job.precision, task.stack) for c in self.chunks]
        self.pipeline = Pipeline(
            self.chunks, self.syncs, self.world, self.context.cut.later, task.micro_batches, self._between()
        )
        self.optimizer = LocalOptimizer(self.locals(), self.world, settings)

    def _chunks(self) -> list[Chunk]:
        policy, schedule = self.task.policy, schedules()[self.task.policy.schedule]
        ranges = stage_ranges(self.task)
        found = []
        for index in range(policy.vpp):
            stage = schedule.stage(self.world.stage, index, policy.pp, policy.vpp)
            first, end = ranges[stage]
            asked = end - first if policy.recompute_layers < 0 else max(policy.recompute_layers - _before(found), 0)
            chunk = Chunk(
                self.context, first, end, recomputed=asked, is_first=stage == 0, is_last=stage == len(ranges) - 1
            )
            found.append(chunk)
        return found

    def _between(self) -> Tensor:
        """As much of an activation between two stages as its receiver must know."""
        job, policy = self.task.job, self.task.policy
        tokens = job.seq // policy.cp // (policy.tp if self.context.cut.sp else 1)
        dtype = torch.float32 if job.precision.compute == "fp32" else torch.bfloat16
        return torch.empty(tokens, policy.micro_batch, self.task.model.hidden, dtype=dtype, device=self.world.device)

    def locals(self) -> list[Local]:
        return [local for sync in self.syncs for local in sync.locals()]

    def accumulate(self, batch: Batch) -> Tensor:
        """All micro-batches of a step forward and backward; the loss summed over this rank's part of the batch."""
        return self.pipeline.run(batch)

    def update(self, rate: float) -> float:
        """The optimizer's step; returns the norm of the whole gradient before it was clipped."""
        with self.world.comm.during("step"):
            norm = self.optimizer.step(self.locals(), rate)
            for sync in self.syncs:
                sync.gather()
                sync.clear()
        return norm


def _before(chunks: list[Chunk]) -> int:
    return sum(len(chunk.layers) for chunk in chunks)


def check(task: Task) -> None:
    """Refuses what no part of the runtime executes."""
    policy, precision, schedule = task.policy, task.job.precision, schedules()[task.policy.schedule]
    if precision.name not in PRECISIONS:
        raise ValueError(f"precision: {precision.name} cannot be run; write {', '.join(PRECISIONS)}")
    if precision.name != "fp32" and not (policy.zero == 3 and policy.dp * policy.cp > 1):
        raise ValueError(f"precision: {precision.name} is FSDP's; write --zero 3 with dp above 1, or --precision fp32")
    if policy.offload != "none":
        raise ValueError(f"offload: {policy.offload} cannot be run; write --offload none")
    if schedule.both_ends:
        raise ValueError(f"schedule: {policy.schedule} holds the model twice and cannot be run; write dualpipe_v or zb_v")
    if task.model.tied and policy.pp > 1 and (policy.zero == 2 or schedule.stage(0, 1, policy.pp, 2) != policy.pp):
        raise ValueError(
            f"schedule: {policy.schedule} with zero {policy.zero} cannot be run with tied vocabulary tables; "
            "write 1f1b or interleaved, and a zero other than 2"
        )
    if policy.ep > 1 and policy.etp > 1:
        raise ValueError(f"etp: {policy.etp} with ep {policy.ep} cannot be run; write --etp 1")
