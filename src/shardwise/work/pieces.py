"""Which layers each piece of the model holds, where a rank of the pipeline holds several."""

from dataclasses import replace

import numpy as np

from shardwise.arrays import Ints
from shardwise.spec.model import Model
from shardwise.work import Work
from shardwise.work.parameters import stage_parameters
from shardwise.work.stages import Grid, Stages


def piece_kinds(model: Model, held: Ints, rank_layers: Ints) -> Grid:
    """pieces x kinds of layers. `held`: ranks x chunks, which piece that is; `rank_layers`: consecutive layers of each
    rank. Its chunks share them evenly, the middle ones what is left."""
    kinds = len(model.kinds)
    found = np.zeros((int(held.max()) + 1, kinds))
    # where the model is there twice a rank's first chunk is its own part and the second its mirror's
    mine = held[:, :1] if len(found) < held.size else held
    low = np.cumsum(rank_layers) - rank_layers
    cuts = low[:, None] + _even_cuts(rank_layers[:, None], mine.shape[1])
    before = np.zeros((model.layers + 1, kinds))
    before[1:] = np.cumsum(np.array(model.pattern, dtype=np.int64)[:, None] == np.arange(kinds), axis=0)
    found[mine] = before[cuts[:, 1:]] - before[cuts[:, :-1]]
    return found


def _even_cuts(layers: Ints, parts: int) -> Ints:
    base, extra = layers // parts, layers % parts
    index = np.arange(parts + 1)
    return np.asarray(base * index + np.clip(index - (parts - extra) // 2, 0, extra))


def cut_into(work: Work, held: Ints, rank_layers: Ints | None = None) -> Work:
    """The work of one policy (with every stage) with each piece as a stage of its own; `rank_layers`: where ranks hold
    others than the program deals out."""
    dealt = np.asarray(work.stages.layers[0], dtype=np.int64)
    kinds = piece_kinds(work.model, held, dealt if rank_layers is None else rank_layers)
    pieces = np.arange(len(kinds), dtype=np.float64)[None]
    stages = Stages(
        index=pieces, kinds=tuple(kinds[:, k][None] for k in range(kinds.shape[1])), layers=kinds.sum(axis=1)[None],
        first=(pieces == 0).astype(np.float64), last=(pieces == pieces.size - 1).astype(np.float64),
    )  # fmt: skip
    return replace(work, stages=stages, parameters=stage_parameters(work.counts, work.layout, stages))
