"""Recursive halving and doubling: as few bytes as a ring, in 2 log2 n rounds (Rabenseifner 2004; Thakur 2005).

In round k a rank swaps with the one whose number differs in bit k: the nearest first, with half of the buffer, and so
on. Ranks beyond the largest power of two hand their buffer to a partner first and get the sum back last.
"""

from collections.abc import Iterator

import numpy as np

from shardwise.arrays import Floats
from shardwise.plugins.collectives._contract import Collective, Load, Ran, Round, Shape
from shardwise.plugins.collectives._flows import flows
from shardwise.plugins.collectives._wire import Array, Wire, parts


def _power(ranks: int) -> int:
    return 1 << (ranks.bit_length() - 1)


def _sent(op: str, ranks: int, local: int) -> Floats:  # noqa: ARG001
    power = _power(ranks)
    fractions = np.full(ranks, 2.0 * (power - 1) / power)
    fractions[power:] = 1.0
    fractions[: ranks - power] += 1.0
    return fractions


def _rounds(op: str, ranks: int, local: int) -> int:  # noqa: ARG001
    power = _power(ranks)
    return 2 * (power.bit_length() - 1) + (2 if ranks > power else 0)


def _flows(op: str, ranks: int, local: int) -> Iterator[Round]:  # noqa: ARG001
    power = _power(ranks)
    extra, everyone = np.arange(power, ranks), np.arange(power)
    bits = range(power.bit_length() - 1)
    if len(extra):
        yield flows(extra, extra - power, 1.0)
    for bit in [*bits, *reversed(bits)]:
        yield flows(everyone, everyone ^ (1 << bit), 0.5 ** (bit + 1))
    if len(extra):
        yield flows(extra - power, extra, 1.0)


def _load(op: str, shape: Shape) -> Load:  # noqa: ARG001
    def power(ranks: Floats) -> Floats:
        return np.asarray(2.0 ** np.floor(np.log2(ranks)))

    near, far = power(shape.below), power(shape.members)
    uneven = np.where(shape.crossed & (shape.size > power(shape.size)), 1.0, 0.0)
    # whoever takes in a rank beyond the power of two sends it the whole buffer, at the highest level it crosses
    uneven[:-1] = np.where(shape.crossed[1:].any(axis=0), 0.0, uneven[:-1])
    out = 2.0 * (1.0 / near - 1.0 / power(shape.size))
    inside = 2.0 * (1.0 - 1.0 / far[0])
    volume = np.where(shape.crossed, out, 0.0) + uneven
    volume[0] = np.where(shape.crossed[0], inside, 0.0) + uneven[0]
    return Load(steps=2.0 * np.log2(far / near) + 2.0 * uneven, volume=volume, own=np.zeros_like(shape.size))


def _run(op: str, arrays: list[Array], local: int) -> Ran:
    ranks = len(arrays)
    power, wire = _power(ranks), Wire(ranks)
    whole = [array.copy() for array in arrays]
    for rank in range(power, ranks):
        whole[rank - power] = whole[rank - power] + wire.send(rank, whole[rank])
    held = {rank: dict(enumerate(parts(whole[rank], power))) for rank in range(power)}
    bits = range(power.bit_length() - 1)
    for bit in bits:
        # a rank keeps the parts that agree with its own number in this bit and all before
        low = (1 << (bit + 1)) - 1
        moves = [
            (rank ^ (1 << bit), part, wire.send(rank, data))
            for rank in held for part, data in held[rank].items() if part & low == (rank ^ (1 << bit)) & low
        ]  # fmt: skip
        held = {rank: {p: d for p, d in held[rank].items() if p & low == rank & low} for rank in held}
        for rank, part, data in moves:
            held[rank][part] = held[rank][part] + data
    for bit in reversed(bits):
        moves = [(rank ^ (1 << bit), p, wire.send(rank, d)) for rank in held for p, d in held[rank].items()]
        for rank, part, data in moves:
            held[rank][part] = data
    results = [np.concatenate([held[rank][part] for part in range(power)]) for rank in range(power)]
    results += [wire.send(rank - power, results[rank - power]) for rank in range(power, ranks)]
    wire.rounds = _rounds(op, ranks, local)
    return wire.ran(results)


COLLECTIVE = Collective(
    name="halving_doubling", ops=("all_reduce",), style="ring", pooled=False, automatic=False, reduces_at="none",
    spans_nodes=False, torus="never",
    sent=_sent, rounds=_rounds, flows=_flows, levels_in_turn=True, load=_load, run=_run,
)  # fmt: skip
