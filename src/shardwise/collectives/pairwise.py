"""Pairwise exchange: in round k every rank sends to the rank k places on."""

import numpy as np

from shardwise.collectives._contract import Collective, Floats, Load, Ran, Shape
from shardwise.collectives._wire import Array, Wire, parts

_AT_ONCE = 8.0
"""peers a library serves side by side, so that their latencies hide each other"""


def _sent(op: str, ranks: int, local: int) -> Floats:  # noqa: ARG001
    return np.full(ranks, (ranks - 1) / ranks)


def _rounds(op: str, ranks: int, local: int) -> int:  # noqa: ARG001
    return ranks - 1


def rounds_of_messages(peers: Floats) -> Floats:
    """Messages to this many peers that wait for each other."""
    return np.where(peers > 0, 1.0 + (peers - 1.0) / _AT_ONCE, 0.0)


def _load(op: str, shape: Shape) -> Load:  # noqa: ARG001
    peers = shape.members - shape.below
    steps = rounds_of_messages(peers)
    volume = np.where(shape.crossed, (shape.size - shape.below) / shape.size, 0.0)
    # Above the node, what goes to far peers passes the near levels on its way; inside it, only what stays there.
    volume[0] = peers[0] / shape.size
    return Load(steps=steps, volume=volume, own=1.0 / shape.size)


def _run(op: str, arrays: list[Array], local: int) -> Ran:  # noqa: ARG001
    ranks = len(arrays)
    wire = Wire(ranks)
    pieces = [parts(array, ranks) for array in arrays]
    got = [[pieces[rank][rank]] * ranks for rank in range(ranks)]
    for distance in range(1, ranks):
        for rank in range(ranks):
            peer = (rank + distance) % ranks
            got[peer][rank] = wire.send(rank, pieces[rank][peer])
        wire.round()
    return wire.ran([np.concatenate(row) for row in got])


COLLECTIVE = Collective(
    name="pairwise", ops=("all_to_all",), style="pairwise", pooled=False, automatic=True, reduces_at="none",
    spans_nodes=False, sent=_sent, rounds=_rounds, load=_load, run=_run,
)  # fmt: skip
