"""What pipeline stages wait for copies of activations: to the host under the forward, and back under its backward.
Programs have buffers for a few layers, so neither pass runs far ahead of its copies."""

from dataclasses import dataclass

import numpy as np

from shardwise.step.estimate.exposure import Unit
from shardwise.work import Work
from shardwise.work.layout import Numbers
from shardwise.work.stages import Grid, Stages, stages_of


@dataclass(frozen=True)
class Copies:
    """Seconds by which copies outlast compute in one micro-batch."""

    forward: Grid
    whole: Grid
    """of a forward and its backward"""


def copies_of(work: Work, units: list[Unit], each: list[Numbers], *, every: bool = False) -> Copies | None:
    """On the evaluated stages, or `every` one (rows of fewer stages repeat their last); None where nothing is copied.
    `each`: a layer's activations to the host and back, by kind."""
    if not each:
        return None
    stages = stages_of(work.model, work.layout, work.stack, every=True) if every else work.stages
    chunks, ends = work.layout.vpp[:, None], stages.first + stages.last
    only = (ends > 1.0) & (chunks == 1.0)
    found = []
    for inner, first, last, both in _of_passes(stages, chunks, units, each):
        several = (chunks - ends) * inner + stages.first * first + stages.last * last
        found.append(np.where(only, both, several))
    forward, back = found
    return Copies(forward, forward + back)


def ends_outlasted(work: Work, units: list[Unit], each: list[Numbers]) -> tuple[Grid, Grid]:
    """On the evaluated stages, seconds by which copies outlast a micro-batch's compute in the chunk with the embedding,
    and in the one with the head, beyond those in a chunk of layers alone: less than none."""
    passes = _of_passes(work.stages, work.layout.vpp[:, None], units, each)
    (inner, first, last, _), (inner_back, first_back, last_back, _) = passes
    return first - inner + (first_back - inner_back), last - inner + (last_back - inner_back)


def _of_passes(stages: Stages, chunks: Numbers, units: list[Unit], each: list[Numbers]) -> list[tuple[Grid, ...]]:
    """Of a forward and of a backward."""
    there = [0.5 * seconds for seconds in each]
    passes = [unit.forward for unit in units], [unit.total - unit.forward for unit in units]
    return [_outlast(stages, chunks, compute, there) for compute in passes]


def _outlast(stages: Stages, chunks: Numbers, compute: list[Numbers], copies: list[Numbers]) -> tuple[Grid, ...]:
    """Of a chunk of layers alone, with the embedding, with the head, with both: a stage's chunks have the same layers;
    the first of the model reads tokens too, its last predicts."""
    *layers, embedding, head = (seconds[:, None] for seconds in compute)
    pairs = zip(stages.kinds, copies, layers, strict=True)
    more = sum(count * (copied[:, None] - own) for count, copied, own in pairs) / chunks
    return tuple(np.maximum(more - end, 0.0) for end in (0.0, embedding, head, embedding + head))


def before_each(grid: Grid, pp: Numbers) -> Grid:
    """Of all stages before each, and last of all: from seconds on every stage."""
    own = np.where(np.arange(grid.shape[1]) < pp[:, None], grid, 0.0)
    return np.hstack([np.zeros((len(own), 1)), np.cumsum(own, axis=1)])
