"""Breadth-first looped pipeline (arXiv:2211.05953): every micro-batch through a chunk before the next chunk starts.

Each chunk's collectives (ZeRO's gather and reduction) are needed once per step and can run under the other chunks. The
idle time is that of the interleaved schedule as long as pp micro-batches keep the ring full; with fewer, each further
chunk waits for the first micro-batch to come round. Every micro-batch is in flight.
"""

import numpy as np

from shardwise.plugins.pipeline import Needs
from shardwise.plugins.schedules._contract import Action, Orders, Schedule, looped
from shardwise.plugins.schedules._orders import pieces


def _order(pp: int, vpp: int, micro_batches: int) -> Orders:
    forwards = [piece for chunk in range(vpp) for piece in pieces("F", micro_batches, chunk)]
    backwards = [Action("B", piece.micro_batch, piece.chunk) for piece in reversed(forwards)]
    return [[*forwards, *backwards] for _ in range(pp)]


SCHEDULE = Schedule(
    name="looped_bfs",
    needs=Needs(chunks="many"),
    piles_up=True,
    summary="all micro-batches through one chunk after another; idle time divided by vpp, holds every micro-batch",
    in_flight=lambda stage, _pp, _vpp, micro_batches: micro_batches + 0 * stage,
    idle=lambda pp, vpp, micro_batches: (pp - 1.0 + (vpp - 1) * np.maximum(pp - micro_batches, 0)) / vpp,
    order=_order,
    stage=looped,
)
