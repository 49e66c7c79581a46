"""Two levels: reduce-scatter inside the node, a ring of equal local ranks over the nodes, all-gather inside.

Sends each byte over the network once per node, not once per hop of a flat ring. Libraries do not choose it by
themselves; frameworks build it from two process groups, and cut buffers so that both levels work at the same time.
"""

from collections.abc import Iterator

import numpy as np

from shardwise.arrays import Floats
from shardwise.plugins.collectives._contract import Collective, Load, Ran, Round, Shape
from shardwise.plugins.collectives._flows import ring_round
from shardwise.plugins.collectives._wire import Array, Wire, node_groups, parts, ring_all_gather, ring_reduce_scatter

_PASSES = {"all_reduce": 2, "all_gather": 1, "reduce_scatter": 1}


def _sent(op: str, ranks: int, local: int) -> Floats:
    nodes = ranks // local
    return np.full(ranks, _PASSES[op] * ((local - 1) / local + (nodes - 1) / nodes / local))


def _rounds(op: str, ranks: int, local: int) -> int:
    return _PASSES[op] * (local - 1 + ranks // local - 1)


def _flows(op: str, ranks: int, local: int) -> Iterator[Round]:
    inside, across = node_groups(ranks, local)
    near = list(ring_round(inside, 1.0 / local, local - 1))
    far = list(ring_round(across, 1.0 / ranks, ranks // local - 1))
    scatter, gather = [*near, *far], [*far, *near]
    yield from {"all_reduce": [*scatter, *gather], "all_gather": gather, "reduce_scatter": scatter}[op]


def _load(op: str, shape: Shape) -> Load:
    degree = shape.members / shape.below
    volume = _PASSES[op] * (degree - 1.0) / (degree * shape.below)
    # The rings over far levels leave through the same cards as those over near ones.
    volume[1:] = np.cumsum(volume[:0:-1], axis=0)[::-1]
    return Load(
        steps=_PASSES[op] * (degree - 1.0),
        volume=volume,
        own=1.0 / shape.size,
    )


def _reduce_scatter(wire: Wire, arrays: list[Array], local: int) -> dict[int, list[Array]]:
    """Afterwards each rank holds its node part in pieces, of which the one of its node is fully reduced."""
    ranks = len(arrays)
    inside, across = node_groups(ranks, local)
    held = {rank: parts(array, local) for rank, array in enumerate(arrays)}
    ring_reduce_scatter(wire, inside, held)
    mine = {rank: parts(held[rank][rank % local], ranks // local) for rank in range(ranks)}
    ring_reduce_scatter(wire, across, mine)
    return mine


def _all_gather(wire: Wire, mine: dict[int, list[Array]], local: int) -> list[Array]:
    """mine[rank][node] valid for its own node; the whole comes out ordered by (local rank, node)."""
    ranks = len(mine)
    inside, across = node_groups(ranks, local)
    ring_all_gather(wire, across, mine)
    held = {rank: [np.concatenate(mine[rank]) for _ in range(local)] for rank in range(ranks)}
    ring_all_gather(wire, inside, held)
    return [np.concatenate(held[rank]) for rank in range(ranks)]


def _reordered(array: Array, slow: int, fast: int) -> Array:
    """A buffer cut by (slow, fast) index, cut by (fast, slow) instead."""
    return array.reshape(slow, fast, -1).swapaxes(0, 1).reshape(-1)


def _run(op: str, arrays: list[Array], local: int) -> Ran:
    ranks = len(arrays)
    nodes = ranks // local
    wire = Wire(ranks)
    if op == "all_gather":
        mine = {rank: [array.copy() for _ in range(nodes)] for rank, array in enumerate(arrays)}
        return wire.ran([_reordered(whole, local, nodes) for whole in _all_gather(wire, mine, local)])
    if op == "reduce_scatter":
        mine = _reduce_scatter(wire, [_reordered(array, nodes, local) for array in arrays], local)
        return wire.ran([mine[rank][rank // local] for rank in range(ranks)])
    return wire.ran(_all_gather(wire, _reduce_scatter(wire, arrays, local), local))


COLLECTIVE = Collective(
    name="two_level", ops=tuple(_PASSES), style="ring", pooled=False, automatic=False, reduces_at="none",
    spans_nodes=True, sent=_sent, rounds=_rounds, flows=_flows, pipelined=True, load=_load, run=_run,
)  # fmt: skip
