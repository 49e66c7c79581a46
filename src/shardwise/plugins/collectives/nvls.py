"""The switch adds: NVLink SHARP inside a node, SHARP in the fabric's switches above it."""

from collections.abc import Iterator

import numpy as np

from shardwise.arrays import Floats
from shardwise.plugins.collectives._contract import NODE_SWITCH, Collective, Load, Ran, Round, Shape
from shardwise.plugins.collectives._flows import fabric_round, switch_rounds
from shardwise.plugins.collectives._wire import Array, Wire, node_groups, parts


def _sent(op: str, ranks: int, local: int) -> Floats:  # noqa: ARG001
    """A rank gives its whole buffer to the node's switch, gets one part back summed, hands that part to the fabric,
    and multicasts what comes back."""
    inside = 0.0 if local == 1 else 1.0 + 1.0 / local
    return np.full(ranks, inside + (0.0 if ranks == local else 1.0 / local))


def _rounds(op: str, ranks: int, local: int) -> int:  # noqa: ARG001
    return (0 if local == 1 else 2) + (0 if ranks == local else 2)


def _flows(op: str, ranks: int, local: int) -> Iterator[Round]:  # noqa: ARG001
    down, up = switch_rounds(ranks, local, NODE_SWITCH)
    if local > 1:
        yield down
    if ranks > local:
        yield from fabric_round(ranks, 1.0 / local)
    if local > 1:
        yield up


def _load(op: str, shape: Shape) -> Load:  # noqa: ARG001
    # A node sends its sum up once, whatever its size; level 0 also carries the multicast of the rank's own part.
    share = np.where(shape.passed, 1.0 / shape.below, 0.0)
    share[0] = np.where(shape.crossed[0], 1.0 + 1.0 / shape.members[0], 0.0)
    return Load(steps=np.where(shape.crossed, 2.0, 0.0), volume=share, own=np.zeros_like(shape.size))


def _run(op: str, arrays: list[Array], local: int) -> Ran:  # noqa: ARG001
    ranks = len(arrays)
    wire = Wire(ranks)
    inside, across = node_groups(ranks, local)
    held = dict(enumerate(arrays))
    if local > 1:
        for node in inside:
            given = [[wire.send(rank, part) for part in parts(arrays[rank], local)] for rank in node]
            held |= {rank: np.sum([g[place] for g in given], axis=0) for place, rank in enumerate(node)}
        wire.rounds += 2
    if ranks > local:
        for rail in across:
            total = np.sum([wire.send(rank, held[rank]) for rank in rail], axis=0)
            held |= dict.fromkeys(rail, total)
        wire.rounds += 2
    if local == 1:
        return wire.ran([held[rank].copy() for rank in range(ranks)])
    multicast = {rank: wire.send(rank, held[rank]) for rank in range(ranks)}
    return wire.ran([np.concatenate([multicast[rank] for rank in node]) for node in inside for _ in node])


COLLECTIVE = Collective(
    name="nvls", ops=("all_reduce",), style="switch", pooled=True, automatic=True, reduces_at="all", spans_nodes=False,
    sent=_sent, rounds=_rounds, flows=_flows, pipelined=True, load=_load, run=_run,
)  # fmt: skip
