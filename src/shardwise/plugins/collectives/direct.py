"""Everyone sends its part to everyone else at once: one round, the least latency there is, for small messages.

As many bytes as a ring; a switch or full mesh carries them side by side. The measured runs behind our constants took
rings and trees, so it runs only when named.
"""

from collections.abc import Iterator

import numpy as np

from shardwise.arrays import Floats
from shardwise.plugins.collectives._contract import Collective, Load, Ran, Round, Shape
from shardwise.plugins.collectives._exchange import exchange_load
from shardwise.plugins.collectives._flows import exchange_round
from shardwise.plugins.collectives._wire import Array, Wire, parts


def _sent(op: str, ranks: int, local: int) -> Floats:  # noqa: ARG001
    return np.full(ranks, (ranks - 1) / ranks)


def _rounds(op: str, ranks: int, local: int) -> int:  # noqa: ARG001
    return int(ranks > 1)


def _flows(op: str, ranks: int, local: int) -> Iterator[Round]:  # noqa: ARG001
    return exchange_round(ranks, 1.0 / ranks)


def _load(op: str, shape: Shape) -> Load:  # noqa: ARG001
    exchanged = exchange_load(shape)
    once = np.where(shape.crossed, 1.0, 0.0)
    return Load(steps=once, volume=exchanged.volume, own=exchanged.own, across=exchanged.across)


def _run(op: str, arrays: list[Array], local: int) -> Ran:  # noqa: ARG001
    ranks = len(arrays)
    wire = Wire(ranks)
    if op == "all_gather":
        got = [[wire.send(source, arrays[source]) if source != rank else arrays[rank].copy() for source in range(ranks)]
               for rank in range(ranks)]  # fmt: skip
        _once(wire, ranks)
        return wire.ran([np.concatenate(row) for row in got])
    pieces = [parts(array, ranks) for array in arrays]
    sums = [pieces[rank][rank] for rank in range(ranks)]
    for rank in range(ranks):
        for source in range(ranks):
            if source != rank:
                sums[rank] = sums[rank] + wire.send(source, pieces[source][rank])
    _once(wire, ranks)
    return wire.ran(sums)


def _once(wire: Wire, ranks: int) -> None:
    if ranks > 1:
        wire.round()


COLLECTIVE = Collective(
    name="direct", ops=("all_gather", "reduce_scatter"), style="pairwise", pooled=False, automatic=False,
    reduces_at="none", spans_nodes=False, torus="never", sent=_sent, rounds=_rounds, flows=_flows, load=_load, run=_run,
)  # fmt: skip
