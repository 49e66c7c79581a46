"""One round of gossip: every rank sends its buffer to some others and takes the mean of its own and what came in."""

from collections.abc import Iterator

import numpy as np

from shardwise.plugins.collectives._contract import Ran, Round
from shardwise.plugins.collectives._flows import flows
from shardwise.plugins.collectives._wire import Array, Wire


def gossip_rounds(ranks: int, distances: tuple[int, ...]) -> Iterator[Round]:
    everyone = np.arange(ranks)
    if distances:
        target = np.concatenate([(everyone + distance) % ranks for distance in distances])
        yield flows(np.tile(everyone, len(distances)), target, 1.0)


def gossip_run(arrays: list[Array], distances: tuple[int, ...]) -> Ran:
    ranks = len(arrays)
    wire = Wire(ranks)
    heard = [[array] for array in arrays]
    for distance in distances:
        for rank, array in enumerate(arrays):
            heard[(rank + distance) % ranks].append(wire.send(rank, array))
    wire.rounds = 1 if distances else 0
    return wire.ran([np.mean(rows, axis=0) for rows in heard])
