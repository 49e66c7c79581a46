"""Sharded parameter server: every rank is the server of its n-th of the buffer; bytes of a ring in two rounds."""

from collections.abc import Iterator

import numpy as np

from shardwise.arrays import Floats
from shardwise.plugins.collectives._contract import Collective, Load, Ran, Round, Shape
from shardwise.plugins.collectives._exchange import exchange_load
from shardwise.plugins.collectives._flows import exchange_round
from shardwise.plugins.collectives._wire import Array, Wire, parts


def _sent(op: str, ranks: int, local: int) -> Floats:  # noqa: ARG001
    return np.full(ranks, 2.0 * (ranks - 1) / ranks)


def _rounds(op: str, ranks: int, local: int) -> int:  # noqa: ARG001
    return 2 if ranks > 1 else 0


def _flows(op: str, ranks: int, local: int) -> Iterator[Round]:  # noqa: ARG001
    for _ in ("push", "pull"):
        yield from exchange_round(ranks, 1.0 / ranks)


def _load(op: str, shape: Shape) -> Load:  # noqa: ARG001
    return exchange_load(shape, passes=2.0)


def _run(op: str, arrays: list[Array], local: int) -> Ran:
    ranks = len(arrays)
    wire = Wire(ranks)
    cut = [parts(array, ranks) for array in arrays]
    sums = [
        np.sum([cut[r][own] if r == own else wire.send(r, cut[r][own]) for r in range(ranks)], axis=0)
        for own in range(ranks)
    ]
    pulled = [[sums[s] if s == rank else wire.send(s, sums[s]) for s in range(ranks)] for rank in range(ranks)]
    wire.rounds = _rounds(op, ranks, local)
    return wire.ran([np.concatenate(row) for row in pulled])


COLLECTIVE = Collective(
    name="sharded_server", ops=("all_reduce",), style="pairwise", pooled=False, automatic=False, reduces_at="none",
    spans_nodes=False, sent=_sent, rounds=_rounds, flows=_flows, load=_load, run=_run,
)  # fmt: skip
