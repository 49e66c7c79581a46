"""Which layers each pipeline stage holds.

Two rules: `even` gives every stage the same number of layers (a remainder goes to the middle stages, away from the
embedding and the head; with extra prediction layers the last stage has all that is missing), `by_cost` cuts where the
running cost, head included, passes an equal share.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from shardwise.spec.model import Model
from shardwise.spec.software import Stack
from shardwise.work.layout import Layout, Numbers
from shardwise.work.runs import Runs

Grid = NDArray[np.float64]
"""policies x stages"""
NARROW = 8


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

    def spread(self, runs: Runs) -> "Stages":
        if runs.of is None:
            return self
        kinds = tuple(runs.rows(kind) for kind in self.kinds)
        return Stages(
            index=runs.rows(self.index),
            kinds=kinds,
            layers=kinds[0] if self.kinds and self.layers is self.kinds[0] else runs.rows(self.layers),
            first=runs.rows(self.first),
            last=runs.rows(self.last),
        )

    def take(self, rows: NDArray[np.int64]) -> "Stages":
        """Of some of the policies. numpy takes rows of a narrow grid ten times faster than it indexes them."""
        kinds = tuple(kind.take(rows, axis=0) for kind in self.kinds)
        return Stages(
            index=self.index.take(rows, axis=0),
            kinds=kinds,
            layers=kinds[0] if self.kinds and self.layers is self.kinds[0] else self.layers.take(rows, axis=0),
            first=self.first.take(rows, axis=0),
            last=self.last.take(rows, axis=0),
        )


def largest(grid: Grid) -> tuple[Numbers, NDArray[np.int64]]:
    """The largest of each row and its column. Grids are narrow, where column by column is faster than row by row."""
    if grid.shape[1] > NARROW:
        column = np.argmax(grid, axis=1)
        return grid[np.arange(len(grid)), column], column
    most, column = grid[:, 0], np.zeros(len(grid), dtype=np.int64)
    for index in range(1, grid.shape[1]):
        higher = grid[:, index] > most
        most, column = np.where(higher, grid[:, index], most), np.where(higher, index, column)
    return most, column


def stage_columns(model: Model, layout: Layout, stack: Stack, *, every: bool) -> Grid:
    """Every stage, or only the first and the last of those that hold the same: equal stages take equal time, and what
    a schedule keeps in flight only falls or only rises along the pipeline (a test holds them to that). Shorter rows
    repeat their last stage."""
    if every:
        columns = np.arange(int(layout.pp.max()), dtype=np.float64)[None, :]
        return np.asarray(np.minimum(columns, layout.pp[:, None] - 1))
    # only with extra prediction layers do the chunks of a stage decide what it holds
    chunks = layout.vpp.astype(np.int64) if model.mtp_layers else np.ones(len(layout.vpp), dtype=np.int64)
    most = int(chunks.max()) + 1
    codes = layout.pp.astype(np.int64) * most + chunks
    # a table look-up: a sort of a large batch would take longer than the rest of this
    present = np.bincount(codes) > 0
    row = (np.cumsum(present) - 1)[codes]
    degrees = [divmod(int(code), most) for code in np.flatnonzero(present)]
    chosen = [_unlike(model, stack.abilities.stage_split, pp, vpp) for pp, vpp in degrees]
    width = max(map(len, chosen))
    table = np.array([[*stages, *[stages[-1]] * (width - len(stages))] for stages in chosen], dtype=np.float64)
    return np.asarray(table[row])


@lru_cache(maxsize=4096)
def _unlike(model: Model, split: str, pp: int, vpp: int) -> tuple[int, ...]:
    """The first stage, the last, and of each kind between them the first and the last, unless the end stage on that
    side holds the same layers and more. One between them is always there: it has two neighbours to send to."""
    index = np.arange(pp, dtype=np.float64)[None, :]
    kinds, _ = _layers(model, split, index, np.full((1, 1), float(pp)), np.full((1, 1), float(vpp)))
    held = np.stack([kind[0] for kind in kinds], axis=1) if kinds else np.zeros((pp, 1))
    rows = [tuple(row) for row in held.tolist()]
    firsts = {row: stage for stage, row in reversed(list(enumerate(rows)))}
    lasts = dict(zip(rows, range(pp), strict=True))
    found = {0, *firsts.values(), *lasts.values(), pp - 1}
    return tuple(sorted(found if len(found) > 2 else {*found, min(1, pp - 1)}))


def stages_of(model: Model, layout: Layout, stack: Stack, *, every: bool) -> Stages:
    index = stage_columns(model, layout, stack, every=every)
    pp = layout.pp[:, None]
    kinds, layers = _layers(model, stack.abilities.stage_split, index, pp, layout.vpp[:, None])
    return Stages(
        index=index,
        kinds=kinds,
        layers=layers,
        first=(index == 0).astype(np.float64),
        last=(index == pp - 1).astype(np.float64),
    )


def mirrored(model: Model, layout: Layout, stack: Stack, index: Grid) -> tuple[Grid, ...]:
    """Layers of each kind on the stages that are as far from the other end."""
    pp = layout.pp[:, None]
    return _layers(model, stack.abilities.stage_split, pp - 1.0 - index, pp, layout.vpp[:, None])[0]


def layers_before(model: Model, split: str, index: Grid, pp: Grid, vpp: Grid) -> tuple[Grid, ...]:
    """Layers of each kind on all stages before these."""
    before = _before(model, split, index, pp, vpp)
    if len(model.kinds) <= 1:
        return (before,) if model.kinds else ()
    return tuple(prefix[before.astype(np.int64)] for prefix in _prefixes(model))


@lru_cache(maxsize=4096)
def rank_layers(model: Model, split: str, pp: int, vpp: int) -> tuple[int, ...]:
    """Consecutive layers of each rank of a pipeline."""
    index = np.arange(pp, dtype=np.float64)[None, :]
    _, layers = _layers(model, split, index, np.full((1, 1), float(pp)), np.full((1, 1), float(vpp)))
    return tuple(int(count) for count in layers[0])


def _layers(model: Model, split: str, index: Grid, pp: Grid, vpp: Grid) -> tuple[tuple[Grid, ...], Grid]:
    """Layers of each kind, and all layers, of the stages."""
    start, end = (_before(model, split, stage, pp, vpp) for stage in (index, index + 1))
    if len(model.kinds) <= 1:
        return ((end - start,) if model.kinds else ()), end - start
    lo, hi = start.astype(np.int64), end.astype(np.int64)
    return tuple(prefix[hi] - prefix[lo] for prefix in _prefixes(model)), end - start


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


def _before(model: Model, split: str, stage: Grid, pp: Grid, vpp: Grid) -> Grid:
    """Layers before `stage`, by a rule or as stated."""
    if split == "by_cost":
        return _by_cost(model, stage, pp)
    if split == "even":
        return _even(model, stage, pp, vpp)
    bounds = np.cumsum([0, *map(int, split.split(","))])
    return np.asarray(bounds[np.clip(stage, 0, len(bounds) - 1).astype(np.int64)], dtype=np.float64)


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
        if (mixer := kind.mamba or kind.delta) is not None:
            total += count * (mixer.projected + mixer.inner) * model.hidden
        if kind.feed_forward is not None:
            total += count * 3.0 * kind.feed_forward.width * model.hidden
        if kind.experts is not None:
            total += count * 3.0 * kind.experts.width * kind.experts.top_k * model.hidden
    return total / max(model.layers, 1)
