"""Work of each rank: what it computes, keeps and sends, from a Training and Policies. No seconds yet."""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from shardwise.arrays import Ints
from shardwise.plugins.schedules import used
from shardwise.plugins.schedules._contract import folded
from shardwise.spec.job import Job
from shardwise.spec.message import Message
from shardwise.spec.model import Model
from shardwise.spec.policy import FRAME, Policies
from shardwise.spec.software import Stack
from shardwise.work.case import Training
from shardwise.work.ends import embedding_work, head_work, mtp_work
from shardwise.work.layer import layer_work
from shardwise.work.layout import Layout, Numbers, copies_held, layout_of, sharded_over
from shardwise.work.ops import LayerWork, element_bytes
from shardwise.work.parameter_messages import (
    OF_MATRICES,
    OF_SUMS,
    Elements,
    ParameterMessage,
    held_alike,
    parameter_messages,
    sum_messages,
    update_messages,
)
from shardwise.work.parameters import ModelCounts, counts_of, frozen_bytes, stage_parameters
from shardwise.work.runs import Runs, alone, runs_of
from shardwise.work.stages import Grid, Stages, mirrored, stages_of, totals
from shardwise.work.tuned import tuned_embedding, tuned_head
from shardwise.work.updates import Updates

SHORT_TENSOR = 1e5
"""elements up to which a tensor is a norm's or a bias, whose message takes next to no time"""


@dataclass(frozen=True)
class Work:
    model: Model
    job: Job
    stack: Stack
    """as it is for the model, which is as the stack trains it, and for the job's precision"""
    layout: Layout
    runs: Runs
    """policies that differ in their settings only; layers and ends are told once for each run"""
    frames: Layout
    """of the first policy of each run"""
    kinds: tuple[LayerWork, ...]
    embedding: LayerWork
    head: LayerWork
    mtp: LayerWork | None
    """what one extra prediction layer adds to a layer and the head"""
    counts: ModelCounts
    stages: Stages
    parameters: tuple[Grid, Grid]
    """dense and expert parameters that are trained, on one rank of each evaluated stage"""

    @cached_property
    def frozen(self) -> tuple[Grid, Grid] | None:
        """Bytes of dense and expert weights that are not trained, as they are kept; None where all are trained."""
        found = frozen_bytes(self.counts, self.layout, self.stages, self.job.precision.param_bytes)
        if found is None:
            return None
        copies = copies_held(self.layout.policies)[:, None]
        return found[0] * copies, found[1] * copies

    @property
    def frozen_sent(self) -> float:
        """Bytes that travel of a byte of frozen weights: as many where they are quantised."""
        precision, tuning = self.job.precision, self.model.tuning
        return 1.0 if tuning is None or tuning.base else precision.param_comm_bytes / precision.param_bytes

    @cached_property
    def handover(self) -> Message[Numbers]:
        """What one rank sends of one activation to the next stage, or of its gradient to the stage before."""
        split = self.layout.tp if self.stack.network.scatter_gather_p2p else self.layout.sp
        width = self.model.streams * self.model.hidden
        bytes_ = element_bytes(self.job.precision) * self.layout.tokens * width / split
        return Message("activations", "send", "pp", bytes_, np.where(self.layout.pp > 1.0, 1.0, 0.0), "forward")

    @cached_property
    def parameter_messages(self) -> tuple[ParameterMessage, ...]:
        """Sent for parameters and gradients; what layers and ends send of activations is theirs."""
        found = parameter_messages(self.model, self.job, self.stack, self.layout, self.stages)
        if self.updates is None:
            return found
        return *found, *(sum_messages if self.updates.rule.factored else update_messages)(self.updates)

    @cached_property
    def updates(self) -> Updates | None:
        """What the optimizer does tensor by tensor; None where it treats all elements alike."""
        return Updates(self) if self.job.optimizer.rule.by_shape else None

    @cached_property
    def tensors(self) -> Numbers:
        """Dense parameters, as tensors, that a stage holds on average."""
        counts = self.counts
        layers = sum(n * len(kind.tensors) for n, kind in zip(totals(self.model), counts.kinds, strict=True))
        return (layers + len(counts.embedding.tensors) + len(counts.head_alone.tensors)) / self.layout.pp

    @cached_property
    def matrices(self) -> Numbers:
        """Of those tensors the long ones."""
        counts, short = self.counts, SHORT_TENSOR
        per_kind = [sum(size > short for size in kind.tensors) for kind in counts.kinds]
        ends = sum(size > short for end in (counts.embedding, counts.head_alone) for size in end.tensors)
        return (sum(n * long for n, long in zip(totals(self.model), per_kind, strict=True)) + ends) / self.layout.pp

    @cached_property
    def expert_tensors(self) -> Numbers:
        """The same of experts, on a rank that holds its share of them."""
        kinds = zip(totals(self.model), self.counts.kinds, strict=True)
        layers = sum(n * len(kind.expert_tensors) for n, kind in kinds)
        return layers / (self.layout.pp * self.layout.ep)

    def elements(self, of: Elements) -> Grid:
        """What a message is made of, on one rank of each evaluated stage."""
        layout, (dense, expert) = self.layout, self.parameters
        if of in OF_MATRICES and self.updates is not None:
            experts, cut = OF_MATRICES[of]
            return self.updates.elements(expert=experts, cut=cut)
        if of in OF_SUMS and self.updates is not None:
            experts, cut, norms = OF_SUMS[of]
            return self.updates.summed(expert=experts, cut=cut, norms=norms)
        if of == "table":
            return np.broadcast_to((self.model.vocab * self.model.hidden / layout.tp)[:, None], dense.shape)
        if of == "kept":
            shards = (sharded_over(layout.policies.zero, 1, ranks) for ranks in (layout.shard, layout.expert_shard))
            return sum((grid / n[:, None] for grid, n in zip(self.parameters, shards, strict=True)), 0.0 * dense)
        if of in ("whole", "copied"):
            return held_alike(self.model, layout, self.stages)[of == "copied"]
        return dense if of == "dense" else expert

    def of_runs(self, runs: Runs) -> "Work":
        """The same for the first policy of each run; runs of frames, or finer ones."""
        if runs.of is None:
            return self
        rows, layout = runs.first, self.frames
        if runs is not self.runs:
            layout = layout_of(self.model, self.job, self.layout.policies.take(rows))
        return replace(
            self,
            layout=layout,
            runs=self.runs.among(rows),
            stages=self.stages.take(rows),
            parameters=(self.parameters[0].take(rows, axis=0), self.parameters[1].take(rows, axis=0)),
        )


def work_of(training: Training, policies: Policies, *, every_stage: bool, batches: Ints | None = None) -> Work:
    """`batches`: the global batch of each policy, where they differ; what policies of one frame share is then worked
    out for each."""
    model, job, stack = training.model, training.job, training.stack
    policies = replace(policies, zero=np.maximum(policies.zero, stack.abilities.least_zero))
    layout = layout_of(model, job, policies, batches)
    runs = runs_of(policies, FRAME, scattered=True) if batches is None else alone(len(policies))
    frames = layout if runs.of is None else layout_of(model, job, policies.take(runs.first))
    precision = job.precision
    counts = counts_of(model)
    if stack.loss.embedding == "broadcast":
        table = counts.embedding
        counts = replace(counts, embedding=replace(table, split=0.0, whole=table.whole + table.split))
    stages = _ends_together(model, frames, stack, stages_of(model, frames, stack, every=every_stage))
    copies = copies_held(frames.policies)[:, None]
    dense, expert = (copies * grid for grid in stage_parameters(counts, frames, stages))
    return Work(
        model=model,
        job=job,
        stack=stack,
        layout=layout,
        runs=runs,
        frames=frames,
        kinds=tuple(layer_work(model, kind, frames, precision, stack, job.seq) for kind in model.kinds),
        embedding=tuned_embedding(embedding_work(model, frames, precision, stack), model),
        head=tuned_head(head_work(model, frames, precision, stack), model, frames, precision),
        mtp=mtp_work(model, frames) if model.mtp_layers else None,
        counts=counts,
        stages=stages.spread(runs),
        parameters=(runs.rows(dense), runs.rows(expert)),
    )


def _ends_together(model: Model, layout: Layout, stack: Stack, stages: Stages) -> Stages:
    """A folded schedule goes down the ranks and up again, so the first one holds the head too. One that runs from both
    ends gives each rank a stage and its mirror image, each for half of the micro-batches."""
    codes = layout.policies.schedule
    for code, schedule in used(codes):
        here = (codes == code)[:, None]
        if schedule.stage is folded:
            stages = replace(stages, last=np.where(here, stages.first, stages.last))
        if schedule.both_ends:
            half = np.where(here, (stages.first + stages.last) / 2, 0.0)
            other = mirrored(model, layout, stack, stages.index)
            stages = replace(
                stages,
                kinds=tuple(np.where(here, (a + b) / 2, a) for a, b in zip(stages.kinds, other, strict=True)),
                first=np.where(here, half, stages.first),
                last=np.where(here, half, stages.last),
            )
    return stages
