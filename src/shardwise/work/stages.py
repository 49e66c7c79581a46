"""Which layers each pipeline stage holds.

Two rules: `even` gives every stage the same number of layers (a remainder goes to the middle stages, away from the
embedding and the head; with extra prediction layers the last stage has all that is missing), `by_cost` cuts where the
running cost, head included, passes an equal share.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shardwise.spec.model import Model
from shardwise.spec.stack import Stack
from shardwise.work.layout import Layout, Numbers

Grid = NDArray[np.float64]
"""policies x stages"""


@dataclass(frozen=True)
class Stages:
    index: Grid
    """stage number of each column"""
    kinds: tuple[Grid, ...]
    """layers of each kind in the stage"""
    layers: Grid
    first: Grid
    """1 where the stage holds the embedding"""
    last: Grid
    """1 where the stage holds the head"""


def stage_columns(model: Model, layout: Layout, *, every: bool) -> Grid:
    """Every stage, or only those that can be the fullest or slowest: the first (embedding, most in flight), the last
    (head), and where layers do not divide the first that has one more. Where layers differ in kind any stage can be."""
    last = layout.pp[:, None] - 1
    if every or len(model.kinds) > 1:
        columns = np.arange(int(layout.pp.max()), dtype=np.float64)[None, :]
        return np.asarray(np.minimum(columns, last))
    pp = layout.pp[:, None]
    extra = model.layers % pp
    if not extra.any():
        return np.concatenate([0 * last, last], axis=1)
    return np.concatenate([0 * last, np.minimum(np.floor((pp - extra) / 2), last), last], axis=1)


def stages_of(model: Model, layout: Layout, stack: Stack, *, every: bool) -> Stages:
    index = stage_columns(model, layout, every=every)
    pp = layout.pp[:, None]
    if stack.stage_split == "by_cost":
        start, end = _by_cost(model, index, pp), _by_cost(model, index + 1, pp)
    else:
        vpp = layout.vpp[:, None]
        start, end = _even(model, index, pp, vpp), _even(model, index + 1, pp, vpp)
    if len(model.kinds) <= 1:
        kinds: tuple[Grid, ...] = (end - start,) if model.kinds else ()
    else:
        lo, hi = start.astype(np.int64), end.astype(np.int64)
        kinds = tuple(prefix[hi] - prefix[lo] for prefix in _prefixes(model))
    return Stages(
        index=index,
        kinds=kinds,
        layers=end - start,
        first=(index == 0).astype(np.float64),
        last=(index == pp - 1).astype(np.float64),
    )


def empty_stages(stages: Stages, layout: Layout) -> Numbers:
    """Evaluated stages without a layer, the embedding or the head (columns may repeat the last stage)."""
    idle = (stages.layers <= 0) & (stages.first == 0) & (stages.last == 0)
    return np.asarray(idle.sum(axis=1), dtype=np.float64) + 0.0 * layout.pp


def totals(model: Model) -> tuple[float, ...]:
    """Layers of each kind in the whole model."""
    return tuple(float(model.pattern.count(kind)) for kind in range(len(model.kinds)))


def _prefixes(model: Model) -> tuple[Numbers, ...]:
    pattern = np.array(model.pattern)
    return tuple(np.concatenate([[0.0], np.cumsum(pattern == kind)]) for kind in range(len(model.kinds)))


def _even(model: Model, stage: Grid, pp: Grid, vpp: Grid) -> Grid:
    """Layers before `stage`."""
    base = np.floor(model.layers / pp)
    extra = model.layers - base * pp
    even = base * stage + np.clip(stage - np.floor((pp - extra) / 2), 0.0, extra)
    if not model.mtp_layers:
        return even
    # the last stage also runs the extra prediction layers and their losses: programs give it what the others leave
    # (Megatron-Core, custom pipeline layout: DeepSeek-V3's 61 layers on 16 stages are 15 x 4 and 1)
    chunk = np.ceil(model.layers / (pp * vpp))
    enough = chunk * (pp * vpp - 1) < model.layers
    return np.where(enough, np.minimum(chunk * vpp * stage, model.layers), even)


def _by_cost(model: Model, stage: Grid, pp: Grid) -> Grid:
    """Layers before `stage` when a stage is closed by the layer that takes the running cost past its share."""
    layer = _mean_layer_parameters(model)
    share = (model.layers + model.vocab * model.hidden / layer) / pp
    ends = np.minimum(np.maximum(np.floor(stage * share + 1e-9) + 1.0, stage), float(model.layers))
    return np.where(stage <= 0, 0.0, np.where(stage >= pp, float(model.layers), ends))


def _mean_layer_parameters(model: Model) -> float:
    total = 0.0
    for kind, count in zip(model.kinds, totals(model), strict=True):
        attention = kind.attention
        if attention is not None:
            total += count * 4.0 * attention.heads * attention.head_dim * model.hidden
        if kind.feed_forward is not None:
            total += count * 3.0 * kind.feed_forward.width * model.hidden
        if kind.experts is not None:
            total += count * 3.0 * kind.experts.width * kind.experts.top_k * model.hidden
    return total / max(model.layers, 1)
