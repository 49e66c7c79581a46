"""Point to point: every rank hands one message to the next, as pipeline stages do."""

from collections.abc import Iterator

import numpy as np

from shardwise.collectives._contract import Collective, Floats, Load, Ran, Round, Shape
from shardwise.collectives._flows import flows
from shardwise.collectives._wire import Array, Wire


def _sent(op: str, ranks: int, local: int) -> Floats:  # noqa: ARG001
    fractions = np.ones(ranks)
    fractions[-1] = 0.0
    return fractions


def _rounds(op: str, ranks: int, local: int) -> int:  # noqa: ARG001
    return min(ranks - 1, 1)


def _flows(op: str, ranks: int, local: int) -> Iterator[Round]:  # noqa: ARG001
    if ranks > 1:
        yield flows(np.arange(ranks - 1), np.arange(1, ranks), 1.0)


def _load(op: str, shape: Shape) -> Load:  # noqa: ARG001
    # The slowest hop sets the pace, so only the highest level that the group crosses counts.
    hop = np.where(shape.highest, 1.0, 0.0)
    return Load(steps=hop, volume=hop, own=np.zeros_like(shape.size))


def _run(op: str, arrays: list[Array], local: int) -> Ran:  # noqa: ARG001
    wire = Wire(len(arrays))
    results = [arrays[0].copy()] + [wire.send(rank, array) for rank, array in enumerate(arrays[:-1])]
    if len(arrays) > 1:
        wire.round()
    return wire.ran(results)


COLLECTIVE = Collective(
    name="send", ops=("send",), style="ring", pooled=False, automatic=True, reduces_at="none", spans_nodes=False,
    sent=_sent, rounds=_rounds, flows=_flows, load=_load, run=_run,
)  # fmt: skip
