"""torch as judge: our orders are those of torch.distributed.pipelining, rank by rank, for every schedule it has."""

import logging
from itertools import product
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from torch.distributed.pipelining import schedules as theirs  # noqa: E402

from shardwise.plugins.schedules import schedules  # noqa: E402
from shardwise.plugins.schedules._contract import Schedule  # noqa: E402

Pieces = list[tuple[str, int, int, bool]]
"""kind, stage of the model, micro-batch, runs together with the next one"""

SINGLE = {"gpipe": "ScheduleGPipe", "1f1b": "Schedule1F1B"}
MULTI = {
    "interleaved": ("ScheduleInterleaved1F1B", "loop"),
    "looped_bfs": ("ScheduleLoopedBFS", "loop"),
    "interleaved_zero_bubble": ("ScheduleInterleavedZeroBubble", "loop"),
    "zb_v": ("ScheduleZBVZeroBubble", "v"),
    "dualpipe_v": ("ScheduleDualPipeV", "v"),
}
SIZES = list(product((1, 2, 3, 4, 8), (1, 2, 3), (1, 2, 3, 4, 8, 9, 16, 24)))


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging.getLogger(theirs.__name__), "disabled", True)


def stage(index: int, pp: int, vpp: int) -> Any:
    """As much of a pipeline stage as torch reads to lay out an order."""
    return SimpleNamespace(
        stage_index=index, num_stages=pp * vpp, group_size=pp, group_rank=0, is_first=index == 0,
        is_last=index == pp * vpp - 1, submod=torch.nn.Identity(), has_backward=True,
    )  # fmt: skip


def torch_orders(class_name: str, pp: int, vpp: int, micro_batches: int) -> list[Pieces]:
    build = getattr(theirs, class_name)
    if class_name in SINGLE.values():
        made = build(stage(0, pp, 1), micro_batches)
        return [flat(made._get_pipeline_order()[rank]) for rank in range(pp)]
    # torch's own stages of rank 0 are enough: every rank lays out the orders of all
    made = build([stage(chunk * pp, pp, vpp) for chunk in range(vpp)], micro_batches)
    return [flat(made.pipeline_order[rank]) for rank in range(pp)]


def flat(actions: list[Any]) -> Pieces:
    """Without waiting slots and gradient reductions, which follow from the pieces."""
    pieces: Pieces = []
    for action in actions:
        parts = [] if action is None else list(action.sub_actions or [action])
        for i, part in enumerate(parts):
            if part.computation_type.value in "FBIW":
                kind = part.computation_type.value
                pieces.append((kind, part.stage_index, part.microbatch_index, i + 1 < len(parts)))
    return pieces


def our_orders(schedule: Schedule, pp: int, vpp: int, micro_batches: int) -> list[Pieces]:
    return [
        [(a.kind, schedule.stage(rank, a.chunk, pp, vpp), a.micro_batch, a.joined) for a in order]
        for rank, order in enumerate(schedule.order(pp, vpp, micro_batches))
    ]


def sizes(name: str) -> list[tuple[int, int, int]]:
    found = [size for size in SIZES if not schedules()[name].legal(*size)]
    assert len(found) >= 5
    return found


@pytest.mark.parametrize("name", MULTI)
def test_chunked_schedules(name: str) -> None:
    class_name, placement = MULTI[name]
    for pp, vpp, micro_batches in sizes(name):
        ours = our_orders(schedules()[name], pp, vpp, micro_batches)
        assert ours == torch_orders(class_name, pp, vpp, micro_batches), (pp, vpp, micro_batches)
        stage_rank = theirs.generate_stage_to_rank_mapping(pp, pp * vpp, style=placement)
        held = {schedules()[name].stage(r, c, pp, vpp): r for r in range(pp) for c in range(vpp)}
        assert held == stage_rank


def test_gpipe() -> None:
    for pp, vpp, micro_batches in sizes("gpipe"):
        assert our_orders(schedules()["gpipe"], pp, vpp, micro_batches) == torch_orders(
            "ScheduleGPipe", pp, vpp, micro_batches
        )


def test_1f1b() -> None:
    """torch 2.13 runs 1F1B from another loop than it draws it from (`_get_pipeline_order`), and the drawing has a slip:
    the last rank's forwards are numbered from 1. Everything else is equal."""
    for pp, vpp, micro_batches in (size for size in sizes("1f1b") if size[2] >= size[0]):
        ours = our_orders(schedules()["1f1b"], pp, vpp, micro_batches)
        ours[-1] = [(kind, at, number + (kind == "F"), joined) for kind, at, number, joined in ours[-1]]
        assert ours == torch_orders("Schedule1F1B", pp, vpp, micro_batches)


def test_torch_refuses_1f1b_with_fewer_micro_batches_than_stages_which_we_run() -> None:
    assert schedules()["1f1b"].legal(4, 1, 3) == ""
    with pytest.raises(ValueError, match="microbatches"):
        torch_orders("Schedule1F1B", 4, 1, 3)


def test_zb_h1_is_the_interleaved_zero_bubble_with_one_chunk() -> None:
    for pp, vpp, micro_batches in sizes("zero_bubble_h1"):
        rounds = max(1, micro_batches // pp)
        if micro_batches % rounds == 0:
            ours = our_orders(schedules()["zero_bubble_h1"], pp, vpp, micro_batches)
            assert ours == torch_orders("ScheduleInterleavedZeroBubble", pp, vpp, micro_batches)


def test_overlapped_is_the_interleaved_one_with_one_chunk() -> None:
    for pp, vpp, micro_batches in sizes("overlapped"):
        rounds = max(1, micro_batches // pp)
        if micro_batches % rounds == 0:
            ours = our_orders(schedules()["overlapped"], pp, vpp, micro_batches)
            assert ours == torch_orders("ScheduleInterleaved1F1B", pp, vpp, micro_batches)


@pytest.mark.parametrize("name", ["interleaved", "interleaved_zero_bubble"])
def test_torch_also_takes_uneven_rounds_which_we_refuse(name: str) -> None:
    """torch stretches the rounds (10 micro-batches on 4 ranks: two rounds of 5); Megatron asks for multiples of pp."""
    assert torch_orders(MULTI[name][0], 4, 2, 10)
    assert "multiples of pp" in schedules()[name].legal(4, 2, 10)


def test_both_refuse_a_short_dualpipe_v() -> None:
    assert "at least 2 x pp" in schedules()["dualpipe_v"].legal(4, 2, 7)
    with pytest.raises(ValueError, match="at least as many microbatches as stages"):
        torch_orders("ScheduleDualPipeV", 4, 2, 7)
