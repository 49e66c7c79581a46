"""Bytes that the frames of a space need at least, without working out how long anything takes: where the least is too
much, nothing of a frame fits."""

from collections.abc import Callable
from dataclasses import replace
from itertools import product

import numpy as np

from shardwise.arrays import Floats, Ints
from shardwise.plan.space import ALL_LAYERS, Space
from shardwise.spec.policy import FRAME, OFFLOAD, Policies

HELD_BY = tuple(name for name in FRAME if name != "order")
"""where ranks lie on the network changes nothing of what they hold"""
NOTHING, BOTH = OFFLOAD.index("none"), OFFLOAD.index("both")
TOGETHER = 1024
"""frames: with their settings some ten thousand policies"""


def least_bytes(space: Space, peaks: Callable[[Policies], Floats], *, any_host: bool) -> Floats:
    """Of each frame over its settings; inf where it has none. ZeRO over all ranks is the smallest of its stage, some
    layers that recompute lie between none and all, and overlap needs nothing. `any_host`: the host holds whatever is
    offloaded, so that nothing is smaller than what offloads most."""
    offload = most_offloaded(space.settings.offload) if any_host else space.settings.offload
    columns = np.stack([getattr(space.frames, name) for name in HELD_BY], axis=1)
    _, first, of = np.unique(columns, axis=0, return_index=True, return_inverse=True)
    parts = [first[begin : begin + TOGETHER] for begin in range(0, len(first), TOGETHER)]
    found = [_least(space, part, peaks, offload) for part in parts]
    return np.asarray(np.concatenate([np.empty(0), *found])[of.reshape(-1)])


def _least(space: Space, index: Ints, peaks: Callable[[Policies], Floats], offloads: tuple[int, ...]) -> Floats:
    table = space.shardings(index)
    opens = np.ones(len(table), dtype=np.bool_)
    opens[1:] = (table[1:, :2] != table[:-1, :2]).any(axis=1)
    settings = np.array(list(product(space.settings.recompute, offloads)), dtype=np.int64)
    row, zero, group = np.repeat(table[opens], len(settings), axis=0).T
    recompute, offload = np.tile(settings, (int(opens.sum()), 1)).T
    lines = replace(
        space.frames.take(index[row]), zero=zero, shard_group=group, recompute=recompute, offload=offload,
        recompute_layers=np.full(len(row), ALL_LAYERS),
    )  # fmt: skip
    least = np.full(len(index), np.inf)
    np.minimum.at(least, row, peaks(lines))
    return least


def most_offloaded(allowed: tuple[int, ...]) -> tuple[int, ...]:
    """The one value that offloads all that any other does; every value where there is none."""
    most = max(allowed)
    return (most,) if most == BOTH or set(allowed) <= {NOTHING, most} else allowed
