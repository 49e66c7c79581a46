"""All policies of a space one after another, in batches: what a scan without bounds looks at."""

from collections.abc import Iterator
from dataclasses import fields, replace

import numpy as np

from shardwise.arrays import Ints
from shardwise.plan.space import ALL_LAYERS, FULL, Space
from shardwise.spec.policy import Policies

BATCH = 16_384
"""policies: from here on larger batches gain a few percent and cost memory and a slower Ctrl-C"""
COLUMNS = ("zero", "shard_group", "recompute", "recompute_layers", "offload")


def every(space: Space, index: Ints | None = None) -> Iterator[Policies]:
    """Policies of the frames of these numbers (all of them), frame by frame: what differs in settings only lies
    together, so that the closed form works a layer out once for all of them."""
    chosen = np.arange(len(space.frames)) if index is None else index
    frames = space.frames
    columns = (frames.dp, frames.cp, frames.pp, frames.matrix_layout, space.chunks_counted)
    keys = np.stack([each[chosen] for each in columns], axis=1)
    kinds, kind = np.unique(keys, axis=0, return_inverse=True)
    for number in range(len(kinds)):
        alike = chosen[kind.reshape(-1) == number]
        table = _settings(space, int(alike[0]))
        if not len(table):
            continue
        together = max(BATCH // len(table), 1)
        for begin in range(0, len(alike), together):
            some = alike[begin : begin + together]
            for top in range(0, len(table), BATCH):
                yield _batch(space, some, table[top : top + BATCH])


def table_of(space: Space) -> Policies:
    """All policies of a small space at once."""
    parts = list(every(space))
    names = [field.name for field in fields(Policies)]
    return Policies(**{name: np.concatenate([getattr(part, name) for part in parts]) for name in names})


def _batch(space: Space, frames: Ints, table: Ints) -> Policies:
    rows = space.frames.take(np.repeat(frames, len(table)))
    columns = np.tile(table, (len(frames), 1)).T
    found = replace(rows, **dict(zip((*COLUMNS, *space.settings.overlaps), columns, strict=True)))
    return found.take(np.flatnonzero(space.runs(found))) if space.settings.limits else found


def _settings(space: Space, frame: int) -> Ints:
    """One row for each combination a frame may have."""
    settings = space.settings
    recompute = [(r, ALL_LAYERS) for r in settings.whole]
    if FULL in settings.recompute:
        recompute += [(FULL, k) for k in space.some_layers(frame)]
    rows = [
        (*sharded, *repeated, *switches.values())
        for sharded in space.sharding(frame)
        for repeated in recompute
        for switches in settings.switches
    ]
    return np.array(rows, dtype=np.int64).reshape(len(rows), len(COLUMNS) + len(settings.overlaps))
