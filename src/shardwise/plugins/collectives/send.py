"""Point to point: every rank hands one message to the next, as pipeline stages do."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from shardwise.arrays import Floats
from shardwise.plugins.collectives._contract import Collective, Load, Ran, Round, Shape
from shardwise.plugins.collectives._flows import flows
from shardwise.plugins.collectives._wire import Array, Wire


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
    # The slowest hop sets the pace. One that leaves its node has a card of its own, and above the leaves it shares the
    # ways of its block with as many as leave it too.
    hop = np.where(shape.highest, 1.0, 0.0)
    volume = np.where(shape.size > shape.below, shape.leaving, 0.0)
    volume[0], volume[1:2] = hop[0], np.where(shape.size > shape.members[0], 1.0, 0.0)
    if shape.one_rail is not None:
        volume[2:] = np.where(volume[2:] > 0.0, np.maximum(volume[2:], shape.one_rail[2:]), 0.0)
    across = hop * (1.0 - np.asarray(shape.next_on_rail, dtype=np.float64))
    across[0] = 0.0
    return Load(steps=hop, volume=volume, own=np.zeros_like(shape.size), across=across)


def _average(op: str, shape: Shape) -> Load:
    """Every rank to the next and the last to the first, as keys and values go round."""
    share = shape.leaving
    above = np.concatenate([share[1:], np.zeros_like(share[:1])])
    across = (share - above) * (1.0 - np.asarray(shape.next_on_rail, dtype=np.float64))
    across[0] = 0.0
    return replace(_load(op, shape), volume=np.concatenate([share[:1] - above[:1], share[1:]]), across=across)


def _run(op: str, arrays: list[Array], local: int) -> Ran:  # noqa: ARG001
    wire = Wire(len(arrays))
    results = [arrays[0].copy()] + [wire.send(rank, array) for rank, array in enumerate(arrays[:-1])]
    if len(arrays) > 1:
        wire.round()
    return wire.ran(results)


COLLECTIVE = Collective(
    name="send", ops=("send",), style="ring", pooled=False, automatic=True, reduces_at="none", spans_nodes=False,
    sent=_sent, rounds=_rounds, flows=_flows, load=_load, average=_average, run=_run,
)  # fmt: skip
