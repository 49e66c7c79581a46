"""Pipeline answers of the sources: idle shares, the four-GPU example, and what (N-1)/m is a share of."""

import numpy as np
import pytest

from shardwise.plugins.schedules import schedules
from shardwise.plugins.schedules._contract import bubble_share
from textbook_pipeline import active_shares


def test_four_gpus_four_micro_batches() -> None:
    expected = [25, 50, 75, 100, 75, 75, 100, 75, 50, 25]
    assert (100 * active_shares(4, 4)).tolist() == expected


@pytest.mark.parametrize(("stages", "micro_batches"), [(4, 4), (8, 32), (16, 64), (2, 1)])
def test_idle_is_n_minus_1_over_m_of_the_busy_time(stages: int, micro_batches: int) -> None:
    for name in ("1f1b", "gpipe"):
        schedule = schedules()[name]
        idle = schedule.idle(stages, 1, micro_batches)
        assert idle / micro_batches == pytest.approx((stages - 1) / micro_batches)
        assert bubble_share(schedule, stages, 1, micro_batches) == pytest.approx(
            (stages - 1) / (micro_batches + stages - 1)
        )


def test_interleaving_divides_the_bubble() -> None:
    plain, chunked = schedules()["1f1b"], schedules()["interleaved"]
    for chunks in (2, 3, 8):
        assert chunked.idle(8, chunks, 32) == pytest.approx(plain.idle(8, 1, 32) / chunks)


def test_1f1b_holds_at_most_pp_micro_batches() -> None:
    stage = np.arange(8)
    assert schedules()["1f1b"].in_flight(stage, 8, 1, 32).tolist() == [8, 7, 6, 5, 4, 3, 2, 1]
    assert schedules()["gpipe"].in_flight(stage, 8, 1, 32).tolist() == [32] * 8
