"""Ring: every rank sends to the next; the optimum in bytes, linear in latency."""

from collections.abc import Iterator, Sequence

import numpy as np

from shardwise.arrays import Floats
from shardwise.plugins.collectives._contract import Collective, Load, Ran, Round, Shape
from shardwise.plugins.collectives._flows import flows, ring_round
from shardwise.plugins.collectives._wire import Array, Wire, parts, ring_all_gather, ring_reduce_scatter

_PASSES = {"all_reduce": 2, "all_gather": 1, "reduce_scatter": 1, "broadcast": 1}


def _sent(op: str, ranks: int, local: int) -> Floats:
    if op == "broadcast":
        chains = _chains(_even(ranks, local))
        fractions = np.ones(ranks)
        for chain in chains:
            fractions[chain[-1]] -= 1.0 / len(chains)
        return fractions
    return np.full(ranks, _PASSES[op] * (ranks - 1) / ranks)


def _rounds(op: str, ranks: int, local: int) -> int:  # noqa: ARG001
    return _PASSES[op] * (ranks - 1)


def _channels(held: Sequence[int], most: int | None = None) -> list[list[int]]:
    """A ring for each network card of the node with the fewest ranks, or for `most` of them: nodes are walked up and
    down by turns, so that a ring enters a node on the rail on which it left the one before, and every card carries its
    share. `held`: ranks in each node."""
    count = min(*held, most or held[0]) if len(held) > 1 else 1
    rings: list[list[int]] = [[] for _ in range(count)]
    for node, (size, end) in enumerate(zip(held, np.cumsum(held).tolist(), strict=True)):
        for number, ring in enumerate(rings):
            first = number * size // count
            up = [end - size + (first + step) % size for step in range(size)]
            ring += up[:: -1 if node % 2 else 1]
    return rings


def _chains(held: Sequence[int], most: int | None = None) -> list[list[int]]:
    """The same rings as chains from rank 0, for broadcasts."""
    return [ring[ring.index(0) :] + ring[: ring.index(0)] for ring in _channels(held, most)]


def _even(ranks: int, local: int) -> list[int]:
    return [local] * (ranks // local)


def _flows(op: str, ranks: int, local: int) -> Iterator[Round]:
    return _uneven(op, _even(ranks, local), local)


def _uneven(op: str, held: Sequence[int], most: int) -> Iterator[Round]:
    ranks = sum(held)
    if op == "broadcast":
        chains = _chains(held, most)
        hops = ([(chain[hop], chain[hop + 1]) for chain in chains] for hop in range(ranks - 1))
        return (flows([a for a, _ in hop], [b for _, b in hop], 1.0 / len(chains)) for hop in hops)
    rings = _channels(held, most)
    return ring_round(rings, 1.0 / ranks / len(rings), _PASSES[op] * (ranks - 1))


def _load(op: str, shape: Shape) -> Load:
    sent = 1.0 if op == "broadcast" else _PASSES[op] * (shape.size - 1.0) / shape.size
    volume = np.where(shape.passed, sent / shape.below, 0.0)
    volume[1:2] = np.where(shape.passed[1:2], sent / shape.cards, 0.0)
    # of a node's channels each leaves it once: that hop is not inside, unless ranks by which none leaves stand there
    inside = np.where((shape.nodes > 1.0) & (shape.fullest <= shape.cards), 1.0 - 1.0 / shape.cards, 1.0)
    volume[0] = np.where(shape.fullest > 1.0, sent * inside, 0.0)
    # the hop out of a block of nodes goes over the rails of its own channels
    alone = shape.one_rail
    if alone is not None:
        volume[2:] = np.maximum(volume[2:], np.where(shape.passed[2:], sent / shape.cards * alone[2:], 0.0))
    return Load(steps=_PASSES[op] * shape.hops, volume=volume, own=1.0 / shape.size)


def _run(op: str, arrays: list[Array], local: int) -> Ran:
    ranks = len(arrays)
    wire, everyone = Wire(ranks), [list(range(ranks))]
    if op == "broadcast":
        chains = _chains(_even(ranks, local))
        got = {rank: parts(arrays[0] if rank == 0 else 0.0 * arrays[0], len(chains)) for rank in range(ranks)}
        for hop in range(ranks - 1):
            for part, chain in enumerate(chains):
                got[chain[hop + 1]][part] = wire.send(chain[hop], got[chain[hop]][part])
            wire.round()
        return wire.ran([np.concatenate(got[rank]) for rank in range(ranks)])
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
    sent=_sent, rounds=_rounds, flows=_flows, uneven=_uneven, pipelined=True, load=_load, run=_run,
)  # fmt: skip
