"""Point to point: every rank hands one message to the next, as pipeline stages do."""

import numpy as np

from shardwise.collectives._contract import Collective, Floats, Load, Ran, Shape
from shardwise.collectives._wire import Array, Wire


def _sent(op: str, ranks: int, local: int) -> Floats:  # noqa: ARG001
    fractions = np.ones(ranks)
    fractions[-1] = 0.0
    return fractions


def _rounds(op: str, ranks: int, local: int) -> int:  # noqa: ARG001
    return min(ranks - 1, 1)


def _load(op: str, shape: Shape) -> Load:  # noqa: ARG001
    # The slowest hop sets the pace, so only the highest level that the group crosses counts.
    above = np.concatenate([shape.crossed[1:], np.zeros_like(shape.crossed[:1])])
    highest = shape.crossed & ~np.logical_or.accumulate(above[::-1], axis=0)[::-1]
    hop = np.where(highest, 1.0, 0.0)
    return Load(steps=hop, volume=hop, own=np.zeros_like(shape.size))


def _run(op: str, arrays: list[Array], local: int) -> Ran:  # noqa: ARG001
    wire = Wire(len(arrays))
    results = [arrays[0].copy()] + [wire.send(rank, array) for rank, array in enumerate(arrays[:-1])]
    if len(arrays) > 1:
        wire.round()
    return wire.ran(results)


COLLECTIVE = Collective(
    name="send", ops=("send",), style="ring", pooled=False, automatic=True, reduces_at="none", spans_nodes=False,
    sent=_sent, rounds=_rounds, load=_load, run=_run,
)  # fmt: skip
