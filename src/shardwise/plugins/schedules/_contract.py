"""What every pipeline schedule states about itself: laws for scalars and arrays alike, and the order of its work."""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from shardwise.plugins.pipeline import Chunks, Needs, refusal

Numbers = NDArray[np.float64]
Kind = Literal["F", "B", "I", "W"]


class Action(NamedTuple):
    """What a rank does next."""

    kind: Kind
    """forward; whole backward; gradient of the input; gradient of the weights"""
    micro_batch: int
    chunk: int
    """which of the rank's chunks of layers"""
    joined: bool = False
    """runs together with the next piece of the same rank: both start when both can and end when both are done"""


Orders = list[list[Action]]
Corners = tuple[tuple[Any, Any], ...]


class Schedule(Struct, frozen=True, kw_only=True):
    name: str
    summary: str
    in_flight: Callable[[Any, Any, Any, Any], Any]
    """(stage, pp, vpp, micro_batches) -> micro-batches whose activations a stage holds at its fullest moment, in units
    of the whole stage (a chunk of an interleaved stage counts 1/vpp), until the weight gradient is done"""
    idle: Callable[[Any, Any, Any], Any]
    """(pp, vpp, micro_batches) -> idle time of a stage, in forward-plus-backward times of one micro-batch there; where
    the backward is split, forward, input gradient and weight gradient are taken as equal"""
    order: Callable[[int, int, int], Orders]
    """(pp, vpp, micro_batches) -> what each rank computes, in order; sends follow from what each piece needs"""
    stage: Callable[[int, int, int, int], int]
    """(rank, chunk, pp, vpp) -> which of the model's pp x vpp stages that chunk is"""
    needs: Needs = Needs()
    """of stages, chunks and micro-batches; without any: one chunk per stage"""
    splits_backward: bool = False
    """some or all backwards are two pieces, I and W"""
    corners: Callable[[Any, Any, Any, Any], Corners] | None = None
    """as `in_flight`, where the backward is split: the moments of which one is the fullest, each as micro-batches whose
    activations are all there, and micro-batches that only wait for their weight gradient. The first is reached by a
    forward, the others by an input gradient. Which one it is depends on how much the two keep: about the same, but the
    second far more where layers are recomputed"""
    piles_up: bool = False
    """every forward comes before the first backward, so what the head keeps is there for each micro-batch"""
    both_ends: bool = False
    """micro-batches enter at both ends, so each rank holds two chunks of a model that is there twice: the first half
    of the micro-batches passes the first chunks, the second half the second chunks"""

    @property
    def chunks(self) -> Chunks:
        return self.needs.chunks

    def legal(self, pp: int, vpp: int, micro_batches: int) -> str:
        """Nothing, or why the schedule cannot run."""
        return refusal(self.name, pp, vpp, micro_batches)


def looped(rank: int, chunk: int, pp: int, _vpp: int) -> int:
    """Chunks go round the ranks: the last rank's output returns to the first."""
    return chunk * pp + rank


def folded(rank: int, chunk: int, pp: int, _vpp: int) -> int:
    """Down the ranks and up again: the last rank holds two neighbours, the first rank both ends."""
    return rank if chunk == 0 else 2 * pp - 1 - rank


def bubble_share(schedule: Schedule, pp: Any, vpp: Any, micro_batches: Any) -> Any:
    """Idle time as a share of the whole step: (N-1)/(m+N-1) for 1F1B; of the busy time alone it is (N-1)/m."""
    idle = schedule.idle(pp, vpp, micro_batches)
    return idle / (micro_batches + idle)
