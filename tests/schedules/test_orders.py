"""What the sources say about single schedules: drawn examples, idle time and memory, and how they compare."""

import numpy as np
import pytest

from schedules.unit_clock import most_held, run
from shardwise.plugins.pipeline import needs, refusal
from shardwise.plugins.schedules import schedules
from shardwise.plugins.schedules._contract import Action, Orders
from textbook_pipeline import active_shares


def text(order: list[Action]) -> str:
    return " ".join(f"{a.kind}{a.micro_batch}" + (f".{a.chunk}" if a.chunk else "") for a in order)


def test_1f1b_of_four_ranks_as_drawn() -> None:
    orders = schedules()["1f1b"].order(4, 1, 5)
    assert text(orders[0]) == "F0 F1 F2 F3 B0 F4 B1 B2 B3 B4"
    assert text(orders[3]) == "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4"


def test_zb_h1_puts_off_as_many_weight_gradients_as_the_rank() -> None:
    orders = schedules()["zero_bubble_h1"].order(3, 1, 4)
    assert text(orders[0]) == "F0 F1 F2 I0 W0 F3 I1 W1 I2 W2 I3 W3"
    assert text(orders[2]) == "F0 I0 F1 I1 F2 I2 W0 F3 I3 W1 W2 W3"


def test_interleaved_goes_in_rounds_of_pp() -> None:
    first = schedules()["interleaved"].order(2, 2, 4)[0]
    assert text(first) == "F0 F1 F0.1 F1.1 F2 B0.1 F3 B1.1 F2.1 B0 F3.1 B1 B2.1 B3.1 B2 B3"


@pytest.mark.parametrize(("stages", "micro_batches"), [(4, 4), (2, 7), (8, 3), (5, 16), (1, 3)])
def test_overlapped_in_lock_step_is_the_textbook_pipeline(stages: int, micro_batches: int) -> None:
    shares = lock_step_shares(schedules()["overlapped"].order(stages, 1, micro_batches))
    assert shares == pytest.approx(active_shares(stages, micro_batches).tolist())
    if (stages, micro_batches) == (4, 4):
        assert [100 * share for share in shares] == [25, 50, 75, 100, 75, 75, 100, 75, 50, 25]


def test_the_warm_up_of_1f1b_is_too_short_for_it() -> None:
    plain, ahead = (lock_step_shares(schedules()[name].order(4, 1, 12)) for name in ("1f1b", "overlapped"))
    assert len(plain) > len(ahead)


def lock_step_shares(orders: Orders) -> list[float]:
    """Share of ranks at work in each step: at most a forward and a backward, in order, inputs from earlier steps."""
    when: dict[tuple[str, int, int], int] = {}
    left = [list(order) for order in orders]
    shares: list[float] = []
    while any(left):
        step, active = len(shares), 0
        for rank, order in enumerate(left):
            kinds: set[str] = set()
            while order and order[0].kind not in kinds and ready(order[0], rank, len(orders) - 1, step, when):
                action = order.pop(0)
                when[action.kind, rank, action.micro_batch] = step
                kinds.add(action.kind)
            active += bool(kinds)
        shares.append(active / len(orders))
    return shares


def ready(action: Action, rank: int, last: int, step: int, when: dict[tuple[str, int, int], int]) -> bool:
    if action.kind == "F":
        return rank == 0 or when.get(("F", rank - 1, action.micro_batch), step) < step
    if rank == last:
        return ("F", rank, action.micro_batch) in when
    return when.get(("B", rank + 1, action.micro_batch), step) < step


def test_zb_v_leaves_no_gap_on_any_rank() -> None:
    """Published: no bubble with F = I = W and 2pp - 1 micro-batches or more."""
    for pp in (2, 4, 8):
        for micro_batches in (2 * pp - 1, 2 * pp, 5 * pp):
            done = run(schedules()["zb_v"], pp, 2, micro_batches)
            assert [done.span(rank) for rank in range(pp)] == [6 * micro_batches] * pp
    short = run(schedules()["zb_v"], 4, 2, 6)
    assert short.span(0) > 6 * 6, "and with fewer there is one"


@pytest.mark.parametrize(("name", "vpp"), [("dualpipe", 1), ("dualpipe_v", 2)])
def test_pairs_run_apart_halve_the_bubble(name: str, vpp: int) -> None:
    for pp in (2, 4, 8):
        schedule, micro_batches = schedules()[name], 4 * pp
        together = run(schedule, pp, vpp, micro_batches).length - 3 * vpp * micro_batches
        apart = run(schedule, pp, vpp, micro_batches, apart=True).length - 3 * vpp * micro_batches
        assert together == 2 * apart


def test_deepseek_v3_table() -> None:
    """Bubble and activations for 16 stages, in pieces F = I = W = 1, B = 2, F&B = 3."""
    pp, micro_batches = 16, 64
    pieces = {"1f1b": (pp - 1) * 3, "zero_bubble_h1": (pp - 1) * (3 - 2), "dualpipe": (pp // 2 - 1) * (3 + 2 - 3)}
    held = {"1f1b": pp, "zero_bubble_h1": pp, "dualpipe": pp + 1}
    for name, bubble in pieces.items():
        done = run(schedules()[name], pp, 1, micro_batches)
        assert done.length - 3 * micro_batches == bubble
        assert max(most_held(order) for order in done.orders) == held[name]


def test_both_halves_of_dualpipe_mirror_each_other() -> None:
    orders = schedules()["dualpipe"].order(6, 1, 14)
    for rank in range(6):
        mirrored = [a._replace(micro_batch=(a.micro_batch + 7) % 14, chunk=1 - a.chunk) for a in orders[5 - rank]]
        assert orders[rank] == mirrored


def test_splitting_the_backward_never_costs_time() -> None:
    known = schedules()
    for pp in (2, 4, 8):
        for micro_batches in (2 * pp, 4 * pp):
            for name in ("interleaved_zero_bubble", "zb_v", "dualpipe_v"):
                assert known[name].idle(pp, 2, micro_batches) <= known["interleaved"].idle(pp, 2, micro_batches)
            assert known["zero_bubble_h1"].idle(pp, 1, micro_batches) < known["1f1b"].idle(pp, 1, micro_batches)


def test_needs_of_columns_are_those_of_single_sizes() -> None:
    sizes = np.array([(pp, vpp, m) for pp in range(1, 9) for vpp in (1, 2, 3) for m in range(1, 20)])
    for name, own in needs().items():
        columns = own.met(*sizes.T)
        assert columns.tolist() == [not refusal(name, *map(int, size)) for size in sizes]
        assert 0 < columns.sum() < len(sizes)


def test_a_refusal_names_schedules_that_can_run() -> None:
    reason = refusal("1f1b", 4, 2, 6)
    assert "needs vpp 1" in reason
    assert "'looped_bfs'" in reason
    assert "'interleaved'" not in reason, "6 micro-batches are not a multiple of 4"
