"""PAT, parallel aggregated trees: every rank is the root of a binary tree, and all trees share their messages.

As few bytes as a ring in ceil(log2 n) rounds. Far ranks come first in a gather, when little is held, and last in a
scatter, when little is left (Jeaugey 2025, arXiv:2506.20252). NCCL from 2.23 on may take it for one rank per
node; the measured runs behind our constants are mostly older, so it runs only when named.
"""

from collections.abc import Iterator

import numpy as np

from shardwise.arrays import Floats
from shardwise.plugins.collectives._contract import Collective, Load, Ran, Round, Shape
from shardwise.plugins.collectives._flows import flows
from shardwise.plugins.collectives._wire import Array, Wire, parts


def _distances(ranks: int) -> list[int]:
    """Powers of two below the number of ranks, the farthest first."""
    return [1 << k for k in reversed(range((ranks - 1).bit_length()))]


def _offsets(distance: int, ranks: int) -> range:
    """How far the parts came that a rank holds and hands on over this distance in a gather."""
    return range(0, ranks - distance, 2 * distance)


def _sent(op: str, ranks: int, local: int) -> Floats:  # noqa: ARG001
    return np.full(ranks, (ranks - 1) / ranks)


def _rounds(op: str, ranks: int, local: int) -> int:  # noqa: ARG001
    return len(_distances(ranks))


def _flows(op: str, ranks: int, local: int) -> Iterator[Round]:  # noqa: ARG001
    everyone, gathers = np.arange(ranks), op == "all_gather"
    for distance in _distances(ranks) if gathers else reversed(_distances(ranks)):
        target = (everyone + (distance if gathers else -distance)) % ranks
        yield flows(everyone, target, len(_offsets(distance, ranks)) / ranks)


def _load(op: str, shape: Shape) -> Load:  # noqa: ARG001
    below, size = shape.below, shape.size
    # Over a short distance d the d last ranks of a block reach out of it, each with 1 / 2d; over a long one all do.
    out = np.where(shape.crossed, np.log2(below) / (2.0 * below) + 1.0 / below - 1.0 / size, 0.0)
    out[0] = (shape.members[0] - 1.0) / shape.members[0]
    # a node's last rank reaches out over every distance, with its own card
    out[1:2] = np.where(shape.crossed[1:2], (size - 1.0) / size, 0.0)
    return Load(steps=np.ceil(np.log2(shape.members)) - np.ceil(np.log2(below)), volume=out, own=1.0 / size)


def _run(op: str, arrays: list[Array], local: int) -> Ran:  # noqa: ARG001
    ranks = len(arrays)
    wire = Wire(ranks)
    if op == "all_gather":
        held = {rank: {rank: array.copy()} for rank, array in enumerate(arrays)}
        for distance in _distances(ranks):
            for rank in range(ranks):
                for offset in _offsets(distance, ranks):
                    part = (rank - offset) % ranks
                    held[(rank + distance) % ranks][part] = wire.send(rank, held[rank][part])
            wire.round()
        return wire.ran([np.concatenate([held[rank][part] for part in range(ranks)]) for rank in range(ranks)])
    sums = {rank: dict(enumerate(parts(array, ranks))) for rank, array in enumerate(arrays)}
    for distance in reversed(_distances(ranks)):
        for rank in range(ranks):
            near = (rank - distance) % ranks
            for offset in _offsets(distance, ranks):
                part = (near - offset) % ranks
                sums[near][part] = sums[near][part] + wire.send(rank, sums[rank][part])
        wire.round()
    return wire.ran([sums[rank][rank] for rank in range(ranks)])


COLLECTIVE = Collective(
    name="pat", ops=("all_gather", "reduce_scatter"), style="ring", pooled=False, automatic=False, reduces_at="none",
    spans_nodes=False, torus="never",
    sent=_sent, rounds=_rounds, flows=_flows, levels_in_turn=True, load=_load, run=_run,
)  # fmt: skip
