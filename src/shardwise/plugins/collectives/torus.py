"""Axis by axis on a torus of neighbours: rings along one axis after the other, in both directions at once.

Buffers are cut so that every axis carries a part at any time: the bandwidth is that of all links, and the farthest
chip is half an axis away, not all others in a row. An all-to-all passes the chips between sender and receiver, so the
longest axis bounds it: bytes x length / (8 x one link), a quarter of an all-gather on one axis (How to Scale Your
Model, chapters on sharding and TPUs).
"""

from collections.abc import Iterator

import numpy as np

from shardwise.arrays import Floats
from shardwise.plugins.collectives._contract import Collective, Load, Ran, Round, Shape
from shardwise.plugins.collectives._wire import Array
from shardwise.plugins.collectives.hierarchical import COLLECTIVE as EXCHANGE
from shardwise.plugins.collectives.two_level import COLLECTIVE as AXES

_PASSES = {"all_reduce": 2, "all_gather": 1, "reduce_scatter": 1, "all_to_all": 1}


def _by_axes(op: str) -> Collective:
    return EXCHANGE if op == "all_to_all" else AXES


def _sent(op: str, ranks: int, local: int) -> Floats:
    return _by_axes(op).sent(op, ranks, local)


def _rounds(op: str, ranks: int, local: int) -> int:
    return _by_axes(op).rounds(op, ranks, local)


def _flows(op: str, ranks: int, local: int) -> Iterator[Round]:
    return _by_axes(op).flows(op, ranks, local)


def _run(op: str, arrays: list[Array], local: int) -> Ran:
    return _by_axes(op).run(op, arrays, local)


def _load(op: str, shape: Shape) -> Load:
    simple = _by_axes(op).load(op, shape)
    degree = shape.members / shape.below
    steps, passed = np.maximum(degree - 1.0, 0.0), np.ones_like(degree)
    edge: tuple[int, ...] = ()
    for level, axes in enumerate(shape.torus):
        if axes:
            steps[level], passed[level] = _hops(axes, edge or (1,) * len(axes), degree[level])
            edge = axes
    volume = simple.volume * passed if op == "all_to_all" else simple.volume
    return Load(steps=_PASSES[op] * steps, volume=volume, own=simple.own)


def _hops(axes: tuple[int, ...], edge: tuple[int, ...], members: Floats) -> tuple[Floats, Floats]:
    """(hops to the farthest, links that a byte of an all-to-all takes of those its axes have). Groups fill one axis
    after the other; a whole axis closes to a ring. `edge`: chips that one hop passes along each axis."""
    rest, farthest = members, np.zeros_like(members)
    longest, used = np.zeros_like(members), np.zeros_like(members)
    for length, chips in zip(axes, edge, strict=True):
        along = np.clip(rest, 1.0, length)
        rest = rest / along
        closed = along >= length
        farthest += chips * np.where(closed, length // 2, along - 1.0)
        mean = np.where(closed, (length**2 // 4) / length, (along**2 - 1.0) / (3.0 * along))
        longest = np.maximum(longest, mean)
        used += along > 1.0
    # the mean counts a rank's own part, which no level's bytes do
    return farthest, np.maximum(longest * used * members / np.maximum(members - 1.0, 1.0), 1.0)


COLLECTIVE = Collective(
    name="torus", ops=tuple(_PASSES), style="ring", pooled=False, automatic=True, reduces_at="none", spans_nodes=False,
    torus="only", sent=_sent, rounds=_rounds, flows=_flows, pipelined=True, load=_load, run=_run,
)  # fmt: skip
