"""One rank of a training run: its chunks of the model, their data parallelism, the pipeline, the optimizer."""

from datetime import timedelta

import torch
from torch import Tensor

from shardwise.run.runtime.net.context import Context, context_of
from shardwise.run.runtime.net.decoder import Block, Chunk
from shardwise.run.runtime.parallel.held import Local, PieceRuns, RankParameter, held_by
from shardwise.run.runtime.parallel.pipeline import Batch, StagePipeline
from shardwise.run.runtime.parallel.sync import Sync, sync_of
from shardwise.run.runtime.parallel.world import WAIT, RankWorld, world_of
from shardwise.run.runtime.train.across import across_of
from shardwise.run.runtime.train.matrices import owners_by_policy
from shardwise.run.runtime.train.optimizer import LocalOptimizer, OptimizerSettings
from shardwise.run.runtime.train.task import Task, checked


class TrainingEngine:
    def __init__(self, task: Task, device: torch.device, settings: OptimizerSettings, wait: timedelta = WAIT) -> None:
        self.task = checked(task)
        self.world: RankWorld = world_of(task.policy, device, task.job.step_tokens, wait, task.kv_copies)
        self.context: Context = context_of(
            task.tuned_model,
            task.policy,
            self.world,
            task.job.seq,
            seed=task.seed,
            capacity=task.capacity,
            stack=task.stack,
            drawn_here=task.drawn_here,
            even_routing=task.even_routing,
            ends_together=task.ends_together,
        )
        self.chunks = self._chunks()
        held = [h for c in self.chunks for h in held_by(c)]
        owners = owners_by_policy(held, settings.rule, self.world)
        self.syncs: list[Sync] = [
            sync_of(c, self.world, task.job.precision, task.stack, settings.rule, owners) for c in self.chunks
        ]
        self.pipeline = StagePipeline(
            self.chunks, self.syncs, self.world, self.context.cut.later, task.micro_batches, self._between()
        )
        on_host = task.policy.offload == "optimizer"
        self.optimizer = LocalOptimizer(self.locals(), self.world, settings, on_host=on_host, shares=self._shares())
        self.across = across_of(task, self.locals(), self.world, self.optimizer)
        self.kept: dict[str, Tensor] = {}
        """what else a checkpoint holds, by name: the same on all ranks, and read in place"""

    def _chunks(self) -> list[Chunk]:
        task, here, ranges = self.task, self.world.stage, self.task.ranges()
        found = []
        for index, recomputed in enumerate(task.recomputed(here)):
            stage = task.stage(here, index)
            ends = {"is_first": stage == 0, "is_last": stage == task.pieces - 1}
            found.append(Chunk(self.context, *ranges[stage], recomputed=recomputed, **ends))
        if task.ends_together and task.model.tied:
            self._share_table(found)
        return found

    @staticmethod
    def _share_table(chunks: list[Chunk]) -> None:
        """A rank with the embedding in one chunk and the head in another holds a tied table once."""
        for lender in chunks:
            for borrower in chunks:
                if lender.embedding is not None and borrower.head is not None and lender is not borrower:
                    borrower.head.borrow(lender.embedding)
                    if not lender.embedding.frozen:
                        lender.embedding.mark_lent()

    def _between(self) -> Tensor:
        """As much of an activation between two stages as its receiver must know."""
        job, policy = self.task.job, self.task.policy
        tokens = job.seq // policy.cp // (policy.tp if self.context.cut.sp else 1)
        dtype = torch.get_default_dtype() if job.precision.compute == "fp32" else torch.bfloat16
        return torch.empty(tokens, policy.micro_batch, self.task.model.hidden, dtype=dtype, device=self.world.device)

    def _shares(self) -> list[dict[RankParameter, PieceRuns | None]]:
        """Of every chunk."""
        return [{held: sync.shares(held) for held in sync.held} for sync in self.syncs]

    def locals(self) -> list[Local]:
        return [local for sync in self.syncs for local in sync.locals()]

    def frozen(self) -> list[Local]:
        return [local for sync in self.syncs for local in sync.frozen()]

    def pack(self) -> None:
        """Frozen matrices in four bits, where the job has them so; weights that are given are read before."""
        if self.task.job.tuning is not None and (base := self.task.job.tuning.base):
            for chunk in self.chunks:
                for part in chunk.parts:
                    if isinstance(part, Block):
                        part.pack(double=base == "nf4")

    def accumulate(self, batch: Batch) -> Tensor:
        """All micro-batches of a step forward and backward; the loss summed over this rank's part of the batch."""
        self.pack()
        return self.pipeline.run(batch)

    def update(self, rate: float) -> float:
        """The optimizer's step; returns the norm of the whole gradient before it was clipped."""
        with self.world.comm.during("step"):
            if self.across is None:
                norm = self.optimizer.step(self.locals(), rate)
            else:
                norm = self.across.step(self.optimizer, self.locals(), rate)
            for sync in self.syncs:
                # a strategy changes parameters after the optimizer has rounded them
                sync.gather(rounded=self.optimizer.rounds and self.across is None)
                sync.clear()
        return norm
