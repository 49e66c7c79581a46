"""A wire that counts: the reference executions send every array through it."""

import numpy as np
from numpy.typing import NDArray

from shardwise.plugins.collectives._contract import Ran

Array = NDArray[np.float64]


class Wire:
    def __init__(self, ranks: int) -> None:
        self.sent = [0] * ranks
        self.rounds = 0

    def send(self, source: int, data: Array) -> Array:
        """Charges the sender and hands over a copy."""
        self.sent[source] += data.nbytes
        return data.copy()

    def round(self) -> None:
        self.rounds += 1

    def ran(self, results: list[Array]) -> Ran:
        return Ran(results, self.sent, self.rounds)


def parts(array: Array, count: int) -> list[Array]:
    """Equal parts, as copies that may be written to."""
    if len(array) % count:
        raise ValueError(f"array: length {len(array)} does not divide into {count} equal parts")
    return [part.copy() for part in np.split(array, count)]


def ring_reduce_scatter(wire: Wire, groups: list[list[int]], held: dict[int, list[Array]]) -> None:
    """All groups at once; afterwards the rank at position p of its group holds the sum of part p."""
    size = len(groups[0])
    for step in range(size - 1):
        moves = []
        for group in groups:
            for place, rank in enumerate(group):
                part = (place - step - 1) % size
                moves.append((group[(place + 1) % size], part, wire.send(rank, held[rank][part])))
        for rank, part, data in moves:
            held[rank][part] = held[rank][part] + data
        wire.round()


def ring_all_gather(wire: Wire, groups: list[list[int]], held: dict[int, list[Array]]) -> None:
    """All groups at once; the rank at position p starts with a valid part p and ends with all parts."""
    size = len(groups[0])
    for step in range(size - 1):
        moves = []
        for group in groups:
            for place, rank in enumerate(group):
                part = (place - step) % size
                moves.append((group[(place + 1) % size], part, wire.send(rank, held[rank][part])))
        for rank, part, data in moves:
            held[rank][part] = data
        wire.round()


def node_groups(ranks: int, local: int) -> tuple[list[list[int]], list[list[int]]]:
    """(groups inside nodes, groups of the same local rank across nodes)."""
    if ranks % local:
        raise ValueError(f"local: {local} ranks per node do not divide {ranks} ranks")
    inside = [list(range(first, first + local)) for first in range(0, ranks, local)]
    return inside, [list(range(first, ranks, local)) for first in range(local)]
