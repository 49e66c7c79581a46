"""The pipeline of a step: how long the busiest rank waits for the others, and when each starts and ends.

Where the ranks' chunks are alike and a backward is one piece, that follows from laws (`laws`). Split backwards, chunks
that are not alike, micro-batches from both ends and stages that reduce each micro-batch at paces of their own wait in
ways no law tells: their order is followed task by task (`followed`), for all policies at once.
"""

from dataclasses import dataclass

import numpy as np

from shardwise.arrays import Ints
from shardwise.step.estimate.pipeline.followed import follow, followed_rows
from shardwise.step.estimate.pipeline.laws import ends_by_law
from shardwise.step.estimate.pipeline.micro_batch import MicroBatch
from shardwise.work.layout import Numbers
from shardwise.work.stages import Grid


@dataclass(frozen=True)
class Pipeline:
    end: Numbers
    """of the last backward, from the first forward's start on"""
    starts: Grid
    """each evaluated stage: its first forward after the pipeline's"""
    ends: Grid
    """and its last backward before the pipeline's"""
    busiest: Numbers
    """seconds the busiest rank is at work: compute, what it stands still for, reductions of every micro-batch"""
    reduced: Numbers
    """where the order was followed: from the pipeline's end until all gradients are reduced; else not a number"""
    gathered: Numbers
    """and how much later it starts because parameters are gathered first"""


def pipeline_of(given: MicroBatch, few: MicroBatch, slowest: Ints) -> Pipeline:
    """`few`: one policy of each run of those that laws cannot tell apart; `slowest`: the busiest of their evaluated
    stages."""
    stages, micro, runs = given.work.stages, given.work.layout.micro_batches, given.runs
    busiest = few.work.layout.micro_batches * few.stage.load[np.arange(len(slowest)), slowest]
    end, starts, ends = ends_by_law(few, slowest)
    by_law = map(runs.rows, (few.work.layout.passes * end, starts, ends, busiest))
    found = Pipeline(*by_law, *(np.full_like(micro, np.nan) for _ in range(2)))
    index, passes = stages.index.astype(np.int64), given.work.layout.passes
    for rows, its, reduced, gathered in follow(given, followed_rows(given)):
        last, at = its.last.max(axis=0), (index[rows].T, np.arange(len(rows)))
        # each pass begins on the rank that ends the one before
        found.end[rows], found.busiest[rows] = passes[rows] * last, passes[rows] * its.busy.max(axis=0)
        found.starts[rows] = its.first[at].T
        found.ends[rows] = (last - its.last)[at].T
        found.reduced[rows], found.gathered[rows] = reduced, gathered
    return found
