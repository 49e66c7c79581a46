"""(Model, Job, Policies) -> Work: what each rank computes, holds and sends. No seconds yet."""

from dataclasses import dataclass, replace

import numpy as np

from shardwise.schedules import used
from shardwise.schedules._contract import folded
from shardwise.spec.job import Job
from shardwise.spec.model import Model
from shardwise.spec.policy import Policies
from shardwise.spec.stack import Stack
from shardwise.work.ends import embedding_work, head_work, mtp_work
from shardwise.work.layer import layer_work
from shardwise.work.layout import Layout, layout_of
from shardwise.work.ops import LayerWork
from shardwise.work.parameters import ModelCounts, counts_of, stage_parameters
from shardwise.work.stages import Grid, Stages, stages_of


@dataclass(frozen=True)
class Work:
    model: Model
    job: Job
    stack: Stack
    layout: Layout
    kinds: tuple[LayerWork, ...]
    embedding: LayerWork
    head: LayerWork
    mtp: LayerWork | None
    """what one extra prediction layer adds to a layer and the head"""
    counts: ModelCounts
    stages: Stages
    parameters: tuple[Grid, Grid]
    """dense and expert parameters on one rank of each evaluated stage"""


def work_of(model: Model, job: Job, policies: Policies, stack: Stack, *, every_stage: bool) -> Work:
    layout = layout_of(model, job, policies)
    precision = job.precision
    counts = counts_of(model)
    stages = _ends_together(policies, stages_of(model, layout, stack, every=every_stage))
    return Work(
        model=model,
        job=job,
        stack=stack,
        layout=layout,
        kinds=tuple(layer_work(model, kind, layout, precision, stack, job.seq) for kind in model.kinds),
        embedding=embedding_work(model, layout, precision),
        head=head_work(model, layout, precision, stack),
        mtp=mtp_work(model, layout) if model.mtp_layers else None,
        counts=counts,
        stages=stages,
        parameters=_held(policies, stage_parameters(counts, layout, stages)),
    )


def _ends_together(policies: Policies, stages: Stages) -> Stages:
    """A folded schedule goes down the ranks and up again, so the first one holds the head too."""
    for code, schedule in used(policies.schedule):
        if schedule.stage is folded:
            here = (policies.schedule == code)[:, None]
            stages = replace(stages, last=np.where(here, stages.first, stages.last))
    return stages


def _held(policies: Policies, parameters: tuple[Grid, Grid]) -> tuple[Grid, Grid]:
    """A schedule that runs from both ends keeps every stage twice."""
    for code, schedule in used(policies.schedule):
        if schedule.both_ends:
            copies = 1.0 + (policies.schedule == code)[:, None]
            parameters = (parameters[0] * copies, parameters[1] * copies)
    return parameters
