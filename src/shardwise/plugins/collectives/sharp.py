"""SHARP in the network only: rings inside the node, the fabric's switches add what the nodes hand up.

For nodes whose own switches cannot add. Libraries take it only where it is switched on (NCCL_COLLNET_ENABLE=1).
"""

from collections.abc import Iterator

import numpy as np

from shardwise.arrays import Floats
from shardwise.plugins.collectives._contract import Collective, Load, Ran, Round, Shape
from shardwise.plugins.collectives._flows import fabric_round, ring_round
from shardwise.plugins.collectives._wire import Array, Wire, node_groups, parts, ring_all_gather, ring_reduce_scatter


def _sent(op: str, ranks: int, local: int) -> Floats:  # noqa: ARG001
    return np.full(ranks, 2.0 * (local - 1) / local + (0.0 if ranks == local else 1.0 / local))


def _rounds(op: str, ranks: int, local: int) -> int:  # noqa: ARG001
    return 2 * (local - 1) + (0 if ranks == local else 2)


def _flows(op: str, ranks: int, local: int) -> Iterator[Round]:  # noqa: ARG001
    inside, _ = node_groups(ranks, local)
    yield from ring_round(inside, 1.0 / local, local - 1)
    if ranks > local:
        yield from fabric_round(ranks, 1.0 / local)
    yield from ring_round(inside, 1.0 / local, local - 1)


def _load(op: str, shape: Shape) -> Load:  # noqa: ARG001
    steps = np.where(shape.crossed, 2.0, 0.0)
    volume = np.where(shape.passed, 1.0 / shape.below, 0.0)
    steps[0] = 2.0 * (shape.members[0] - 1.0)
    volume[0] = 2.0 * (shape.members[0] - 1.0) / shape.members[0]
    return Load(steps=steps, volume=volume, own=np.zeros_like(shape.size))


def _run(op: str, arrays: list[Array], local: int) -> Ran:  # noqa: ARG001
    ranks = len(arrays)
    wire = Wire(ranks)
    inside, across = node_groups(ranks, local)
    held = {rank: parts(array, local) for rank, array in enumerate(arrays)}
    ring_reduce_scatter(wire, inside, held)
    if ranks > local:
        for place, rail in enumerate(across):
            total = np.sum([wire.send(rank, held[rank][place]) for rank in rail], axis=0)
            for rank in rail:
                held[rank][place] = total
        wire.rounds += 2
    ring_all_gather(wire, inside, held)
    return wire.ran([np.concatenate(held[rank]) for rank in range(ranks)])


COLLECTIVE = Collective(
    name="sharp", ops=("all_reduce",), style="ring", pooled=True, automatic=False, reduces_at="network",
    spans_nodes=True, sent=_sent, rounds=_rounds, flows=_flows, pipelined=True, load=_load, run=_run,
)  # fmt: skip
