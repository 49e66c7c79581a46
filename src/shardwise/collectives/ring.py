"""Ring: every rank sends to the next; the optimum in bytes, linear in latency."""

from collections.abc import Iterator

import numpy as np

from shardwise.collectives._contract import Collective, Floats, Load, Ran, Round, Shape
from shardwise.collectives._flows import flows, ring_round
from shardwise.collectives._wire import Array, Wire, parts, ring_all_gather, ring_reduce_scatter

_PASSES = {"all_reduce": 2, "all_gather": 1, "reduce_scatter": 1, "broadcast": 1}


def _sent(op: str, ranks: int, local: int) -> Floats:  # noqa: ARG001
    if op == "broadcast":
        fractions = np.ones(ranks)
        fractions[-1] = 0.0
        return fractions
    return np.full(ranks, _PASSES[op] * (ranks - 1) / ranks)


def _rounds(op: str, ranks: int, local: int) -> int:  # noqa: ARG001
    return _PASSES[op] * (ranks - 1)


def _channels(ranks: int, local: int) -> list[list[int]]:
    """A ring for each network card: nodes are walked up and down by turns, so that a ring enters a node on the rail
    on which it left the one before, and every card carries its share."""
    if local in (1, ranks):
        return [list(range(ranks))]
    rings = []
    for first in range(local):
        up = [(first + step) % local for step in range(local)]
        rings.append([node * local + place for node in range(ranks // local) for place in up[:: -1 if node % 2 else 1]])
    return rings


def _flows(op: str, ranks: int, local: int) -> Iterator[Round]:
    if op == "broadcast":
        return (flows([rank], [rank + 1], 1.0) for rank in range(ranks - 1))
    rings = _channels(ranks, local)
    return ring_round(rings, 1.0 / ranks / len(rings), _PASSES[op] * (ranks - 1))


def _load(op: str, shape: Shape) -> Load:
    volume = 1.0 if op == "broadcast" else _PASSES[op] * (shape.size - 1.0) / shape.size
    return Load(
        steps=_PASSES[op] * shape.hops,
        volume=np.where(shape.crossed, volume / shape.below, 0.0),
        own=1.0 / shape.size,
    )


def _run(op: str, arrays: list[Array], local: int) -> Ran:  # noqa: ARG001
    ranks = len(arrays)
    wire, everyone = Wire(ranks), [list(range(ranks))]
    if op == "broadcast":
        results = [arrays[0].copy()]
        for rank in range(1, ranks):
            results.append(wire.send(rank - 1, results[-1]))
            wire.round()
        return wire.ran(results)
    if op == "all_gather":
        held = {rank: [array.copy() for array in arrays] for rank in range(ranks)}
    else:
        held = {rank: parts(array, ranks) for rank, array in enumerate(arrays)}
        ring_reduce_scatter(wire, everyone, held)
        if op == "reduce_scatter":
            return wire.ran([held[rank][rank] for rank in range(ranks)])
    ring_all_gather(wire, everyone, held)
    return wire.ran([np.concatenate(held[rank]) for rank in range(ranks)])


COLLECTIVE = Collective(
    name="ring", ops=tuple(_PASSES), style="ring", pooled=True, automatic=True, reduces_at="none", spans_nodes=False,
    sent=_sent, rounds=_rounds, flows=_flows, pipelined=True, load=_load, run=_run,
)  # fmt: skip
