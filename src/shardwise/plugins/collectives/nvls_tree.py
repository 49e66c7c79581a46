"""NVLink SHARP inside each node, a double binary tree over the nodes for each local rank's part."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from shardwise.arrays import Floats
from shardwise.plugins.collectives._contract import NODE_SWITCH, Collective, Load, Ran, Round, Shape
from shardwise.plugins.collectives._flows import switch_rounds
from shardwise.plugins.collectives._tree_load import tree_average, tree_steps, tree_volume
from shardwise.plugins.collectives._trees import height, sent_down, sent_up, tree_broadcast, tree_reduce, tree_rounds
from shardwise.plugins.collectives._wire import Array, Wire, node_groups, parts


def _sent(op: str, ranks: int, local: int) -> Floats:  # noqa: ARG001
    nodes = ranks // local
    across = (np.array(sent_up(nodes)) + np.array(sent_down(nodes))) / local
    inside = 0.0 if local == 1 else 1.0 + 1.0 / local
    return np.repeat(across, local) + inside


def _rounds(op: str, ranks: int, local: int) -> int:  # noqa: ARG001
    return (0 if local == 1 else 2) + 2 * height(ranks // local)


def _flows(op: str, ranks: int, local: int) -> Iterator[Round]:  # noqa: ARG001
    _, across = node_groups(ranks, local)
    down, up = switch_rounds(ranks, local, NODE_SWITCH)
    if local > 1:
        yield down
    for upwards in (True, False):
        yield from tree_rounds(across, 1.0 / local, upwards)
    if local > 1:
        yield up


def _load(op: str, shape: Shape) -> Load:  # noqa: ARG001
    steps, volume = tree_steps(shape, 2), tree_volume(shape, 2)
    steps[0] = np.where(shape.crossed[0], 2.0, 0.0)
    volume[0] = np.where(shape.crossed[0], 1.0 + 1.0 / shape.members[0], 0.0)
    return Load(steps=steps, volume=volume, own=np.zeros_like(shape.size))


def _average(op: str, shape: Shape) -> Load:
    busiest = _load(op, shape)
    return replace(busiest, volume=np.concatenate([busiest.volume[:1], tree_average(shape, 2)[1:]]))


def _run(op: str, arrays: list[Array], local: int) -> Ran:  # noqa: ARG001
    ranks = len(arrays)
    wire = Wire(ranks)
    inside, across = node_groups(ranks, local)
    reduced: dict[int, Array] = {}
    for node in inside:
        if local == 1:
            reduced[node[0]] = arrays[node[0]]
            continue
        given = [[wire.send(rank, part) for part in parts(arrays[rank], local)] for rank in node]
        reduced |= {rank: np.sum([g[place] for g in given], axis=0) for place, rank in enumerate(node)}
    halves = {rank: parts(array, 2) for rank, array in reduced.items()}
    tree_reduce(wire, across, halves)
    tree_broadcast(wire, across, halves)
    results: list[Array] = []
    for node in inside:
        whole = [np.concatenate(halves[rank]) for rank in node]
        if local > 1:
            whole = [wire.send(rank, part) for rank, part in zip(node, whole, strict=True)]
        results += [np.concatenate(whole) for _ in node]
    wire.rounds += 0 if local == 1 else 2
    return wire.ran(results)


COLLECTIVE = Collective(
    name="nvls_tree", ops=("all_reduce",), style="switch", pooled=True, automatic=True, reduces_at="node",
    spans_nodes=True, torus="never",
    sent=_sent, rounds=_rounds, flows=_flows, pipelined=True, load=_load, average=_average, run=_run,
)  # fmt: skip
