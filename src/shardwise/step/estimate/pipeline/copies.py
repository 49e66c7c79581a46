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
    chunks = work.layout.vpp[:, None]
    there = [0.5 * seconds for seconds in each]
    forward = _outlast(stages, chunks, [unit.forward for unit in units], there)
    return Copies(forward, forward + _outlast(stages, chunks, [unit.total - unit.forward for unit in units], there))


def _outlast(stages: Stages, chunks: Numbers, compute: list[Numbers], copies: list[Numbers]) -> Grid:
    """A stage's chunks have the same layers; the first of the model reads tokens too, its last predicts."""
    *layers, embedding, head = (seconds[:, None] for seconds in compute)
    pairs = zip(stages.kinds, copies, layers, strict=True)
    more = sum(count * (copied[:, None] - own) for count, copied, own in pairs) / chunks
    ends = stages.first + stages.last
    only = (ends > 1.0) & (chunks == 1.0)
    inner, first, last, both = (np.maximum(more - end, 0.0) for end in (0.0, embedding, head, embedding + head))
    return np.where(only, both, (chunks - ends) * inner + stages.first * first + stages.last * last)


def before_each(grid: Grid, pp: Numbers) -> Grid:
    """Of all stages before each, and last of all: from seconds on every stage."""
    own = np.where(np.arange(grid.shape[1]) < pp[:, None], grid, 0.0)
    return np.hstack([np.zeros((len(own), 1)), np.cumsum(own, axis=1)])
