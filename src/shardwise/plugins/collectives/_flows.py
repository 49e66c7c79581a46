"""Rounds of flows that several algorithms are made of."""

from collections.abc import Iterator, Sequence

import numpy as np

from shardwise.arrays import Floats, Ints
from shardwise.plugins.collectives._contract import FABRIC_SWITCH, Round


def flows(
    source: Sequence[int] | Ints, target: Sequence[int] | Ints, fraction: float | Floats, times: int = 1
) -> Round:
    sources, targets = np.asarray(source, dtype=np.int64), np.asarray(target, dtype=np.int64)
    return Round(sources, targets, np.broadcast_to(np.asarray(fraction, dtype=np.float64), sources.shape), times)


def ring_round(groups: Sequence[Sequence[int]], fraction: float, times: int) -> Iterator[Round]:
    """Every rank to the next of its group, `times` times over; nothing for groups of one."""
    if times and len(groups[0]) > 1:
        members = np.asarray(groups, dtype=np.int64)
        yield flows(members.ravel(), np.roll(members, -1, axis=1).ravel(), fraction, times)


def shifted_rounds(groups: Sequence[Sequence[int]], fraction: float) -> Iterator[Round]:
    """Pairwise exchange inside every group: in round k to the rank k places on."""
    members = np.asarray(groups, dtype=np.int64)
    for distance in range(1, members.shape[1]):
        yield flows(members.ravel(), np.roll(members, -distance, axis=1).ravel(), fraction)


def switch_rounds(ranks: int, parts: int, switch: int) -> tuple[Round, Round]:
    """The switch adds (each rank gives its buffer and gets one of `parts` sums), then hands that part's total round."""
    everyone, at = np.arange(ranks), np.full(ranks, switch)
    source, target = np.concatenate([everyone, at]), np.concatenate([at, everyone])
    given, part = np.ones(ranks), np.full(ranks, 1.0 / parts)
    return (
        flows(source, target, np.concatenate([given, part])),
        flows(source, target, np.concatenate([part, given])),
    )


def fabric_round(ranks: int, fraction: float) -> Iterator[Round]:
    """Every rank hands a part to the switches above the nodes, which add; then the sums come back."""
    everyone, at = np.arange(ranks), np.full(ranks, FABRIC_SWITCH)
    yield flows(everyone, at, fraction)
    yield flows(at, everyone, fraction)


def exchange_round(ranks: int, fraction: float) -> Iterator[Round]:
    """Every rank to every other, all at once."""
    everyone = np.arange(ranks)
    source, target = np.repeat(everyone, ranks), np.tile(everyone, ranks)
    apart = source != target
    if apart.any():
        yield flows(source[apart], target[apart], fraction)
