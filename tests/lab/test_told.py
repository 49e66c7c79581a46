"""What ranks said becomes one time: from when the last began to when the last was done."""

import pytest

from shardwise.lab.order import Span
from shardwise.lab.told import turn_times


def spans(*turns: tuple[tuple[float, float], ...]) -> list[Span]:
    return [Span(world=0, case=0, turn=number, rank=rank, start_s=start, end_s=end)
            for number, turn in enumerate(turns) for rank, (start, end) in enumerate(turn)]  # fmt: skip


def test_a_turn_lasts_from_the_last_start_to_the_last_end():
    assert turn_times(spans(((0.0, 1.0), (0.01, 1.2)))) == pytest.approx([1.19])


def test_a_turn_that_a_rank_began_late_is_left_out():
    good, late = ((5.0, 6.0), (5.001, 6.0)), ((10.0, 11.0), (10.4, 11.0))
    assert turn_times(spans(good, late)) == pytest.approx([0.999])
    assert turn_times(spans(late)) == pytest.approx([0.6]), "one is better than none"
