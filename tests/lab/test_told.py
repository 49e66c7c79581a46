"""What ranks said becomes one time: from when the last began to when the last was done."""

import numpy as np
import pytest

from shardwise_lab.emulated import emulated_of
from shardwise_lab.order import Span
from shardwise_lab.sampler import Samples
from shardwise_lab.told import _ports, turn_times


def spans(*turns: tuple[tuple[float, float], ...]) -> list[Span]:
    return [Span(world=0, case=0, turn=number, rank=rank, start_s=start, end_s=end)
            for number, turn in enumerate(turns) for rank, (start, end) in enumerate(turn)]  # fmt: skip


def test_a_turn_lasts_from_the_last_start_to_the_last_end():
    assert turn_times(spans(((0.0, 1.0), (0.01, 1.2)))) == pytest.approx([1.19])


def test_a_turn_that_a_rank_began_late_is_left_out():
    good, late = ((5.0, 6.0), (5.001, 6.0)), ((10.0, 11.0), (10.4, 11.0))
    assert turn_times(spans(good, late)) == pytest.approx([0.999])
    assert turn_times(spans(late)) == pytest.approx([0.6]), "one is better than none"


def test_bytes_that_a_rank_sends_before_the_last_has_come_are_counted():
    """A port that sends from 5 s to 6 s, read every 10 ms; the second rank begins 15 ms after the first."""
    fabric = emulated_of("star4")
    at = np.arange(4.0, 7.0, 0.01)
    port = np.round(1e6 * np.clip(at - 5.0, 0.0, 1.0)).astype(np.int64)
    sent = np.zeros((len(at), len(fabric.tree.links)), dtype=np.int64)
    sent[:, 0] = port
    samples = Samples(at, sent, np.zeros((len(at), 0), dtype=np.int64), (), np.zeros(len(at)))
    (row,) = _ports(fabric, spans(((5.001, 6.0), (5.016, 6.0))), np.eye(1, sent.shape[1])[0] * 1e6, samples)
    assert row.measured_bytes == 1_000_000
