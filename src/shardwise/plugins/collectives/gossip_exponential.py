"""Gossip on the one-peer exponential graph: in step t every rank averages with the one 2^t places before it.

One round is one step; of the steps it is the one with the longest way, which costs the most (Ying et al. 2021,
arXiv:2110.13363: after log2 n steps all hold the exact mean where n is a power of two).
"""

from collections.abc import Iterator

import numpy as np

from shardwise.arrays import Floats
from shardwise.plugins.collectives._contract import Collective, Load, Ran, Round, Shape
from shardwise.plugins.collectives._gossip import gossip_rounds, gossip_run
from shardwise.plugins.collectives._wire import Array


def _distances(ranks: int) -> tuple[int, ...]:
    return () if ranks == 1 else (1 << ((ranks - 1).bit_length() - 1),)


def _sent(op: str, ranks: int, local: int) -> Floats:  # noqa: ARG001
    return np.full(ranks, float(len(_distances(ranks))))


def _rounds(op: str, ranks: int, local: int) -> int:  # noqa: ARG001
    return min(ranks - 1, 1)


def _flows(op: str, ranks: int, local: int) -> Iterator[Round]:  # noqa: ARG001
    return gossip_rounds(ranks, _distances(ranks))


def _load(op: str, shape: Shape) -> Load:  # noqa: ARG001
    hop = np.where(shape.highest, 1.0, 0.0)
    return Load(steps=hop, volume=hop, own=np.zeros_like(shape.size))


def _run(op: str, arrays: list[Array], local: int) -> Ran:  # noqa: ARG001
    return gossip_run(arrays, _distances(len(arrays)))


COLLECTIVE = Collective(
    name="gossip_exponential", ops=("neighbor_average",), style="ring", pooled=False, automatic=False,
    reduces_at="none", spans_nodes=False, sent=_sent, rounds=_rounds, flows=_flows, load=_load, run=_run,
)  # fmt: skip
