"""Double binary tree over the nodes, a chain inside each: logarithmic latency over the network.

The buffer is cut into a part per local rank. Part c runs along a chain of the node's ranks that ends at local rank c,
over the tree of all local ranks c, and back along the chain, so that every network card carries its share.
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from shardwise.arrays import Floats
from shardwise.plugins.collectives._contract import Collective, Load, Ran, Round, Shape
from shardwise.plugins.collectives._flows import flows
from shardwise.plugins.collectives._tree_load import tree_average, tree_steps, tree_volume
from shardwise.plugins.collectives._trees import height, sent_down, sent_up, tree_broadcast, tree_reduce, tree_rounds
from shardwise.plugins.collectives._wire import Array, Wire, node_groups, parts


def _sent(op: str, ranks: int, local: int) -> Floats:  # noqa: ARG001
    nodes = ranks // local
    across = (np.array(sent_up(nodes)) + np.array(sent_down(nodes))) / local
    return np.repeat(across, local) + 2.0 * (local - 1) / local


def _rounds(op: str, ranks: int, local: int) -> int:  # noqa: ARG001
    return 2 * (local - 1 + height(ranks // local))


def _chain(step: int, local: int, node: list[int]) -> list[tuple[int, int, int]]:
    """(source, target, part) of the hop `step` of every part's chain; part c starts behind c and ends there."""
    return [(node[(c + 1 + step) % local], node[(c + 2 + step) % local], c) for c in range(local)]


def _flows(op: str, ranks: int, local: int) -> Iterator[Round]:  # noqa: ARG001
    inside, across = node_groups(ranks, local)
    hops = [[hop for node in inside for hop in _chain(step, local, node)] for step in range(local - 1)]
    for hop in hops:
        yield flows([source for source, _, _ in hop], [target for _, target, _ in hop], 1.0 / local)
    for upwards in (True, False):
        yield from tree_rounds(across, 1.0 / local, upwards)
    for hop in reversed(hops):
        yield flows([target for _, target, _ in hop], [source for source, _, _ in hop], 1.0 / local)


def _load(op: str, shape: Shape) -> Load:  # noqa: ARG001
    steps, volume = tree_steps(shape, 2), tree_volume(shape, 2)
    steps[0] = 2.0 * (shape.members[0] - 1.0)
    volume[0] = 2.0 * (shape.members[0] - 1.0) / shape.members[0]
    return Load(steps=steps, volume=volume, own=np.zeros_like(shape.size))


def _average(op: str, shape: Shape) -> Load:
    busiest = _load(op, shape)
    return replace(busiest, volume=np.concatenate([busiest.volume[:1], tree_average(shape, 2)[1:]]))


def _run(op: str, arrays: list[Array], local: int) -> Ran:  # noqa: ARG001
    ranks = len(arrays)
    wire = Wire(ranks)
    inside, across = node_groups(ranks, local)
    held = {rank: parts(array, local) for rank, array in enumerate(arrays)}
    for step in range(local - 1):
        for node in inside:
            for source, target, part in _chain(step, local, node):
                held[target][part] = held[target][part] + wire.send(source, held[source][part])
    halves = {rank: parts(held[rank][rank % local], 2) for rank in range(ranks)}
    tree_reduce(wire, across, halves)
    tree_broadcast(wire, across, halves)
    for rank in range(ranks):
        held[rank][rank % local] = np.concatenate(halves[rank])
    for step in reversed(range(local - 1)):
        for node in inside:
            for source, target, part in _chain(step, local, node):
                held[source][part] = wire.send(target, held[target][part])
    wire.rounds += 2 * (local - 1)
    return wire.ran([np.concatenate(held[rank]) for rank in range(ranks)])


COLLECTIVE = Collective(
    name="tree", ops=("all_reduce",), style="tree", pooled=True, automatic=True, reduces_at="none", spans_nodes=True,
    torus="never",
    sent=_sent, rounds=_rounds, flows=_flows, pipelined=True, load=_load, average=_average, run=_run,
)  # fmt: skip
