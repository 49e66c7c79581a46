"""Gossip on a ring: one round in which every rank averages with both neighbours (Lian et al., arXiv:1705.09056)."""

from collections.abc import Iterator

import numpy as np

from shardwise.arrays import Floats
from shardwise.plugins.collectives._contract import Collective, Load, Ran, Round, Shape
from shardwise.plugins.collectives._gossip import gossip_rounds, gossip_run
from shardwise.plugins.collectives._wire import Array


def _distances(ranks: int) -> tuple[int, ...]:
    """Places to the next and the previous rank, which are one and the same of two."""
    return {1: (), 2: (1,)}.get(ranks, (1, -1))


def _sent(op: str, ranks: int, local: int) -> Floats:  # noqa: ARG001
    return np.full(ranks, float(len(_distances(ranks))))


def _rounds(op: str, ranks: int, local: int) -> int:  # noqa: ARG001
    return min(ranks - 1, 1)


def _flows(op: str, ranks: int, local: int) -> Iterator[Round]:  # noqa: ARG001
    return gossip_rounds(ranks, _distances(ranks))


def _load(op: str, shape: Shape) -> Load:  # noqa: ARG001
    # The first and the last rank of a block send one of their two messages out of it, a lone one both.
    both = np.where(shape.size > 2.0, 2.0, 1.0)
    volume = np.where(shape.crossed, np.where(shape.below > 1.0, 1.0, both), 0.0)
    volume[0] = np.where((shape.members[0] == 2.0) & shape.crossed[0], 1.0, volume[0])
    return Load(steps=np.where(shape.highest, 1.0, 0.0), volume=volume, own=np.zeros_like(shape.size))


def _run(op: str, arrays: list[Array], local: int) -> Ran:  # noqa: ARG001
    return gossip_run(arrays, _distances(len(arrays)))


COLLECTIVE = Collective(
    name="gossip_ring", ops=("neighbor_average",), style="ring", pooled=False, automatic=True, reduces_at="none",
    spans_nodes=False, sent=_sent, rounds=_rounds, flows=_flows, load=_load, run=_run,
)  # fmt: skip
