"""The switch adds: NVLink SHARP inside a node, SHARP in the fabric's switches above it."""

import numpy as np

from shardwise.collectives._contract import Collective, Floats, Load, Ran, Shape
from shardwise.collectives._wire import Array, Wire, parts


def _sent(op: str, ranks: int, local: int) -> Floats:  # noqa: ARG001
    """Every rank gives its whole buffer to the switch, gets one part back reduced, and multicasts that part."""
    return np.full(ranks, 0.0 if ranks == 1 else 1.0 + 1.0 / ranks)


def _rounds(op: str, ranks: int, local: int) -> int:  # noqa: ARG001
    return 0 if ranks == 1 else 2


def _load(op: str, shape: Shape) -> Load:  # noqa: ARG001
    # A node sends its sum up once, whatever its size; level 0 also carries the multicast of the rank's own part.
    share = np.where(shape.crossed, 1.0 / shape.below, 0.0)
    share[0] = np.where(shape.crossed[0], 1.0 + 1.0 / shape.members[0], 0.0)
    return Load(steps=np.where(shape.crossed, 2.0, 0.0), volume=share, own=np.zeros_like(shape.size))


def _run(op: str, arrays: list[Array], local: int) -> Ran:  # noqa: ARG001
    ranks = len(arrays)
    wire = Wire(ranks)
    if ranks == 1:
        return wire.ran([arrays[0].copy()])
    given = [[wire.send(rank, part) for part in parts(array, ranks)] for rank, array in enumerate(arrays)]
    wire.round()
    reduced = [np.sum([given[rank][part] for rank in range(ranks)], axis=0) for part in range(ranks)]
    multicast = [wire.send(owner, part) for owner, part in enumerate(reduced)]
    wire.round()
    return wire.ran([np.concatenate(multicast) for _ in range(ranks)])


COLLECTIVE = Collective(
    name="nvls", ops=("all_reduce",), style="switch", pooled=True, automatic=True, reduces_at="all", spans_nodes=False,
    sent=_sent, rounds=_rounds, load=_load, run=_run,
)  # fmt: skip
