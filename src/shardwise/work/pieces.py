"""Which layers each piece of the model holds, where a rank of the pipeline holds several."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from shardwise.spec.model import Model
from shardwise.work import Work
from shardwise.work.parameters import stage_parameters
from shardwise.work.stages import Grid, Stages

Ints = NDArray[np.int64]


def piece_kinds(model: Model, held: Ints, rank_layers: Ints) -> Grid:
    """pieces x kinds of layers. `held`: ranks x chunks, which piece that is; `rank_layers`: consecutive layers of each
    rank. Its chunks share them evenly, the middle ones what is left."""
    pieces = int(held.max()) + 1
    ends = np.cumsum(rank_layers)
    pattern = np.array(model.pattern, dtype=np.int64)
    kinds = np.zeros((pieces, len(model.kinds)))
    twice = pieces < held.size
    for rank, row in enumerate(held):
        # where the model is there twice a rank's first chunk is its own part and the second its mirror's
        mine = row[:1] if twice else row
        low = int(ends[rank] - rank_layers[rank])
        cuts = low + _even_cuts(int(rank_layers[rank]), len(mine))
        for chunk, piece in enumerate(mine):
            kinds[piece] = np.bincount(pattern[cuts[chunk] : cuts[chunk + 1]], minlength=len(model.kinds))
    return kinds


def _even_cuts(layers: int, parts: int) -> Ints:
    base, extra = divmod(layers, parts)
    index = np.arange(parts + 1)
    return np.asarray(base * index + np.clip(index - (parts - extra) // 2, 0, extra))


def cut_into(work: Work, held: Ints) -> Work:
    """The work of one policy (with every stage) with each piece as a stage of its own."""
    kinds = piece_kinds(work.model, held, np.asarray(work.stages.layers[0], dtype=np.int64))
    pieces = np.arange(len(kinds), dtype=np.float64)[None]
    stages = Stages(
        index=pieces, kinds=tuple(kinds[:, k][None] for k in range(kinds.shape[1])), layers=kinds.sum(axis=1)[None],
        first=(pieces == 0).astype(np.float64), last=(pieces == pieces.size - 1).astype(np.float64),
    )  # fmt: skip
    return replace(work, stages=stages, parameters=stage_parameters(work.counts, work.layout, stages))
