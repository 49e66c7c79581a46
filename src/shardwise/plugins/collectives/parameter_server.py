"""Parameter server: rank 0 collects every buffer, adds, and hands the sum to each: n - 1 buffers over one link."""

from collections.abc import Iterator

import numpy as np

from shardwise.arrays import Floats
from shardwise.plugins.collectives._contract import Collective, Load, Ran, Round, Shape
from shardwise.plugins.collectives._exchange import exchange_steps
from shardwise.plugins.collectives._flows import flows
from shardwise.plugins.collectives._wire import Array, Wire


def _sent(op: str, ranks: int, local: int) -> Floats:  # noqa: ARG001
    fractions = np.ones(ranks)
    fractions[0] = ranks - 1.0
    return fractions


def _rounds(op: str, ranks: int, local: int) -> int:  # noqa: ARG001
    return 2 if ranks > 1 else 0


def _flows(op: str, ranks: int, local: int) -> Iterator[Round]:  # noqa: ARG001
    if ranks > 1:
        workers, server = np.arange(1, ranks), np.zeros(ranks - 1, dtype=np.int64)
        yield flows(workers, server, 1.0)
        yield flows(server, workers, 1.0)


def _load(op: str, shape: Shape) -> Load:  # noqa: ARG001
    # the server's own link is the busiest; pushes and pulls of different pieces run side by side
    volume = np.where(shape.crossed, shape.size - shape.below, 0.0)
    volume[0] = shape.members[0] - 1.0
    steps = 2.0 * exchange_steps(shape.members - shape.below)
    return Load(steps=steps, volume=volume, own=np.zeros_like(shape.size))


def _run(op: str, arrays: list[Array], local: int) -> Ran:
    ranks = len(arrays)
    wire = Wire(ranks)
    pushed = [wire.send(rank, arrays[rank]) for rank in range(1, ranks)]
    total = np.sum([arrays[0], *pushed], axis=0)
    wire.rounds = _rounds(op, ranks, local)
    return wire.ran([total, *(wire.send(0, total) for _ in range(1, ranks))])


COLLECTIVE = Collective(
    name="parameter_server", ops=("all_reduce",), style="pairwise", pooled=False, automatic=False, reduces_at="none",
    spans_nodes=False, sent=_sent, rounds=_rounds, flows=_flows, pipelined=True, load=_load, run=_run,
)  # fmt: skip
