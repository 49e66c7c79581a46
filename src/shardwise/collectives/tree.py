"""Double binary tree over the nodes, a chain inside each: logarithmic latency over the network."""

import numpy as np

from shardwise.collectives._contract import Collective, Floats, Load, Ran, Shape
from shardwise.collectives._tree_load import tree_steps, tree_volume
from shardwise.collectives._trees import height, sent_down, sent_up, tree_broadcast, tree_reduce
from shardwise.collectives._wire import Array, Wire, parts


def _sent(op: str, ranks: int, local: int) -> Floats:  # noqa: ARG001
    fractions: Floats = np.array(sent_up(ranks)) + np.array(sent_down(ranks))
    return fractions


def _rounds(op: str, ranks: int, local: int) -> int:  # noqa: ARG001
    return 2 * height(ranks)


def _load(op: str, shape: Shape) -> Load:  # noqa: ARG001
    steps, volume = tree_steps(shape, 2), tree_volume(shape, 2)
    steps[0] = 2.0 * (shape.members[0] - 1.0)
    volume[0] = np.where(shape.crossed[0], 2.0, 0.0)
    return Load(steps=steps, volume=volume, own=np.zeros_like(shape.size))


def _run(op: str, arrays: list[Array], local: int) -> Ran:  # noqa: ARG001
    ranks = len(arrays)
    wire, everyone = Wire(ranks), [list(range(ranks))]
    halves = {rank: parts(array, 2) for rank, array in enumerate(arrays)}
    tree_reduce(wire, everyone, halves)
    tree_broadcast(wire, everyone, halves)
    return wire.ran([np.concatenate(halves[rank]) for rank in range(ranks)])


COLLECTIVE = Collective(
    name="tree", ops=("all_reduce",), style="tree", pooled=True, automatic=True, reduces_at="none", spans_nodes=True,
    sent=_sent, rounds=_rounds, load=_load, run=_run,
)  # fmt: skip
