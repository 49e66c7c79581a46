"""Hierarchical all-to-all: first to the mate in the node that has the receiver's local rank, then along its rail.

Every network message stays on one rail and is as long as a node's ranks together would send: few, long messages, for
one more copy inside the node. Frameworks build it from two process groups.
"""

from collections.abc import Iterator

import numpy as np

from shardwise.arrays import Floats
from shardwise.plugins.collectives._contract import Collective, Load, Ran, Round, Shape
from shardwise.plugins.collectives._exchange import exchange_steps
from shardwise.plugins.collectives._flows import shifted_rounds
from shardwise.plugins.collectives._wire import Array, Wire, node_groups, parts


def _sent(op: str, ranks: int, local: int) -> Floats:  # noqa: ARG001
    nodes = ranks // local
    return np.full(ranks, (local - 1) / local + (nodes - 1) / nodes)


def _rounds(op: str, ranks: int, local: int) -> int:  # noqa: ARG001
    return local - 1 + ranks // local - 1


def _flows(op: str, ranks: int, local: int) -> Iterator[Round]:  # noqa: ARG001
    inside, across = node_groups(ranks, local)
    yield from shifted_rounds(inside, 1.0 / local)
    yield from shifted_rounds(across, local / ranks)


def _load(op: str, shape: Shape) -> Load:  # noqa: ARG001
    nodes = shape.members / shape.members[0]
    peers = nodes - np.maximum(shape.below / shape.members[0], 1.0)
    peers[0] = shape.members[0] - 1.0
    volume = np.where(shape.passed, (shape.size - shape.below) / shape.size, 0.0)
    volume[0] = peers[0] / shape.members[0]
    return Load(steps=exchange_steps(peers), volume=volume, own=1.0 / shape.size)


def _run(op: str, arrays: list[Array], local: int) -> Ran:
    ranks = len(arrays)
    wire = Wire(ranks)
    inside, across = node_groups(ranks, local)
    pieces = [parts(array, ranks) for array in arrays]
    # relayed[mate][source] = what `source` has for all ranks of the mate's rail, node by node
    relayed: dict[int, dict[int, list[Array]]] = {rank: {} for rank in range(ranks)}
    for node in inside:
        for source in node:
            for mate in node:
                bundle = pieces[source][mate % local :: local]
                relayed[mate][source] = bundle if mate == source else [wire.send(source, piece) for piece in bundle]
    got: dict[int, dict[int, Array]] = {rank: {} for rank in range(ranks)}
    for rail in across:
        for mate in rail:
            for place, target in enumerate(rail):
                for source, bundle in relayed[mate].items():
                    got[target][source] = bundle[place] if mate == target else wire.send(mate, bundle[place])
    wire.rounds = _rounds(op, ranks, local)
    return wire.ran([np.concatenate([got[rank][source] for source in range(ranks)]) for rank in range(ranks)])


COLLECTIVE = Collective(
    name="hierarchical", ops=("all_to_all",), style="pairwise", pooled=False, automatic=False, reduces_at="none",
    spans_nodes=True, sent=_sent, rounds=_rounds, flows=_flows, levels_in_turn=True, load=_load, run=_run,
)  # fmt: skip
