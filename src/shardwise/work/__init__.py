"""(Training, Policies) -> Work: what each rank computes, holds and sends. No seconds yet."""

from dataclasses import dataclass, replace

import numpy as np

from shardwise.case import Training
from shardwise.schedules import used
from shardwise.schedules._contract import folded
from shardwise.software import Stack
from shardwise.spec.job import Job
from shardwise.spec.model import Model
from shardwise.spec.policy import FRAME, Policies
from shardwise.work.ends import embedding_work, head_work, mtp_work
from shardwise.work.layer import layer_work
from shardwise.work.layout import Layout, layout_of
from shardwise.work.ops import LayerWork
from shardwise.work.parameters import ModelCounts, counts_of, stage_parameters
from shardwise.work.runs import Runs, runs_of
from shardwise.work.stages import Grid, Stages, mirrored, stages_of


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
    """dense and expert parameters on one rank of each evaluated stage"""


def work_of(training: Training, policies: Policies, *, every_stage: bool) -> Work:
    model, job, stack = training.model, training.job, training.stack
    layout = layout_of(model, job, policies)
    runs = runs_of(policies, FRAME)
    frames = layout if runs.of is None else layout_of(model, job, policies.take(runs.first))
    precision = job.precision
    counts = counts_of(model)
    if stack.loss.embedding == "broadcast":
        table = counts.embedding
        counts = replace(counts, embedding=replace(table, split=0.0, whole=table.whole + table.split))
    stages = _ends_together(model, frames, stack, stages_of(model, frames, stack, every=every_stage))
    parameters = _held(frames.policies, stage_parameters(counts, frames, stages))
    return Work(
        model=model,
        job=job,
        stack=stack,
        layout=layout,
        runs=runs,
        frames=frames,
        kinds=tuple(layer_work(model, kind, frames, precision, stack, job.seq) for kind in model.kinds),
        embedding=embedding_work(model, frames, precision, stack),
        head=head_work(model, frames, precision, stack),
        mtp=mtp_work(model, frames) if model.mtp_layers else None,
        counts=counts,
        stages=stages.spread(runs),
        parameters=(runs.rows(parameters[0]), runs.rows(parameters[1])),
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


def _held(policies: Policies, parameters: tuple[Grid, Grid]) -> tuple[Grid, Grid]:
    copies = copies_held(policies)
    return parameters[0] * copies, parameters[1] * copies


def copies_held(policies: Policies) -> Grid:
    """A schedule that runs from both ends keeps every stage twice."""
    copies = np.ones((len(policies), 1))
    for code, schedule in used(policies.schedule):
        if schedule.both_ends:
            copies = copies + (policies.schedule == code)[:, None]
    return copies
