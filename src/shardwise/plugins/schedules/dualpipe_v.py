"""DualPipeV: DualPipe cut in half (Sea AI Lab, taken up in DeepSeek's DualPipe). Two chunks per rank laid out as a V.

A forward of one chunk runs together with a whole backward of the other, so that each one's transfers and all-to-alls
hide under the other's compute. Idle time, from DeepSeek's table for PP = 2pp stages: (PP/2-1)(F&B + B - 3W) with F and
B of one chunk and F&B the pair, here taken as F + B: two of a rank's six pieces for each of pp-1, a third of 1F1B's.
Were the pairs run as two pieces, each result sent when it is there, it would be half of that.
Peak memory: PP+1 chunks on every rank.
"""

from typing import Any

from shardwise.plugins.pipeline import Needs
from shardwise.plugins.schedules._contract import Action, Corners, Orders, Schedule, folded
from shardwise.plugins.schedules._orders import B1, F0, F1, I0, I1, Tape


def _order(pp: int, _vpp: int, micro_batches: int) -> Orders:
    return [rank_order(rank, pp, micro_batches) for rank in range(pp)]


def rank_order(rank: int, pp: int, micro_batches: int) -> list[Action]:
    tape, below = Tape(), pp - rank - 1
    tape.repeat(2 * below, F0)
    tape.repeat(rank + 1, F0, F1)
    for _ in range(below):
        tape.add(*I1)
        tape.pay_weight()
        tape.add(*F1)
    for i in range(micro_batches - 2 * pp + rank + 1):
        if i == 0 and below == 0:
            # at the turn of the V both are there at once; sending the forward first starts the others earlier
            tape.repeat(1, F0, B1)
        else:
            tape.pair(forward=0, backward=1)
        tape.pair(forward=1, backward=0)
    for _ in range(below):
        tape.add(*B1)
        tape.pair(forward=1, backward=0)
    _drain(tape, rank, pp)
    return tape.actions


def _drain(tape: Tape, rank: int, pp: int) -> None:
    """The later half of the last backwards is split, and their weight gradients fill the waiting time."""
    whole = rank + 1
    for i in range(2 * (rank + 1)):
        tape.add("B" if i < whole else "I", 1 - i % 2)
    for _ in range(pp - rank - 1):
        tape.pay_weight()
        tape.add(*I0)
    for _ in range(rank + 1):
        tape.pay_weight()


def corners(rank: Any, pp: Any, chunks: Any) -> Corners:
    """Full; while the V fills; while it drains, where every rank puts off one more than the one before."""
    full = 2 * pp + 1.0 + 0 * rank
    filling = (full - 2) * (rank < pp - 1), 1.0 + 0 * rank
    return tuple((a / chunks, b / chunks) for a, b in ((full, 0 * full), filling, (pp - 1.0 - rank, rank + 1.0)))


SCHEDULE = Schedule(
    name="dualpipe_v",
    needs=Needs(chunks="two", least=2),
    summary="two chunks in a V, forwards paired with backwards; a third of 1F1B's idle time",
    in_flight=lambda stage, pp, _vpp, _micro_batches: pp + 0.5 + 0 * stage,
    idle=lambda pp, _vpp, _micro_batches: (pp - 1.0) / 3.0,
    order=_order,
    stage=folded,
    splits_backward=True,
    corners=lambda stage, pp, vpp, _micro_batches: corners(stage, pp, vpp),
)
