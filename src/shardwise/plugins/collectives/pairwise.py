"""Pairwise exchange: in round k every rank sends to the rank k places on."""

from collections.abc import Iterator

import numpy as np

from shardwise.arrays import Floats
from shardwise.plugins.collectives._contract import Collective, Load, Ran, Round, Shape
from shardwise.plugins.collectives._exchange import exchange_load
from shardwise.plugins.collectives._flows import shifted_rounds
from shardwise.plugins.collectives._wire import Array, Wire, parts


def _sent(op: str, ranks: int, local: int) -> Floats:  # noqa: ARG001
    return np.full(ranks, (ranks - 1) / ranks)


def _rounds(op: str, ranks: int, local: int) -> int:  # noqa: ARG001
    return ranks - 1


def _flows(op: str, ranks: int, local: int) -> Iterator[Round]:  # noqa: ARG001
    return shifted_rounds([range(ranks)], 1.0 / ranks)


def _load(op: str, shape: Shape) -> Load:  # noqa: ARG001
    return exchange_load(shape)


def _run(op: str, arrays: list[Array], local: int) -> Ran:  # noqa: ARG001
    ranks = len(arrays)
    wire = Wire(ranks)
    pieces = [parts(array, ranks) for array in arrays]
    got = [[pieces[rank][rank]] * ranks for rank in range(ranks)]
    for distance in range(1, ranks):
        for rank in range(ranks):
            peer = (rank + distance) % ranks
            got[peer][rank] = wire.send(rank, pieces[rank][peer])
        wire.round()
    return wire.ran([np.concatenate(row) for row in got])


COLLECTIVE = Collective(
    name="pairwise", ops=("all_to_all",), style="pairwise", pooled=False, automatic=True, reduces_at="none",
    spans_nodes=False, torus="never", sent=_sent, rounds=_rounds, flows=_flows, pipelined=True, load=_load, run=_run,
)  # fmt: skip
