"""What gloo sends, message by message, and what that is on the wire."""

import numpy as np
import pytest

from shardwise.plugins.collectives import collective
from shardwise_lab.sends import gloo_sends, sends_of, table_sends
from shardwise_lab.wire import pairs_of, wired

MEGA = 1 << 20


@pytest.mark.parametrize("ranks", [2, 3, 4, 8])
@pytest.mark.parametrize(("op", "algorithm", "law"), [
    ("all_reduce", "ring", "all_reduce"), ("reduce_scatter", "ring", "all_reduce"),
    ("all_gather", "ring", "all_gather"), ("all_to_all", "pairwise", "all_to_all"),
])  # fmt: skip
def test_bytes_of_a_rank_are_the_algorithms_own(op, algorithm, law, ranks):
    size = 840 * MEGA // 100
    sent = gloo_sends(op, size, ranks).matrix(ranks).sum(axis=1)
    expected = np.max(collective(algorithm).sent(law, ranks, 1)) * size
    assert sent == pytest.approx(np.full(ranks, expected), rel=1e-4)


def test_a_buffer_is_cut_into_two_segments_a_rank_and_none_above_a_mebibyte():
    few, many = gloo_sends("all_reduce", MEGA, 4), gloo_sends("all_reduce", 40 * MEGA, 4)
    assert set(few.bytes) == {MEGA / 8}
    assert few.count.sum() == 4 * 2 * 6
    assert set(many.bytes) == {MEGA}
    assert many.count.sum() == 4 * 2 * 30


def test_a_few_bytes_are_few_messages():
    """Three doubles over four ranks: three segments of eight bytes, each passed on by three ranks, twice."""
    sends = gloo_sends("all_reduce", 24, 4, element=8)
    assert set(sends.bytes) == {8.0}
    assert sends.count.sum() == 3 * 3 * 2


def test_a_broadcast_reaches_everyone_once():
    for ranks in (2, 3, 5, 8):
        table = gloo_sends("broadcast", 100.0, ranks).matrix(ranks)
        assert (table.sum(axis=0) == [0.0] + [100.0] * (ranks - 1)).all()


WINDOW = 65_536


def test_what_a_message_is_on_the_wire():
    """A thousand bytes: a packet of 48 + 1000 + 66 and one of 48 + 66 ahead; back one of 48 + 66 and one of 66."""
    ahead, back = wired(sends_of([(0, 1, 1000.0, 1.0)]), WINDOW)
    assert (ahead[0], back[0]) == (1000 + 48 + 66 + 114, 114 + 66)
    _, back = wired(sends_of([(0, 1, 1000.0, 1.0)], "ready"), WINDOW)
    assert back[0] == 66
    ahead, back = wired(sends_of([(0, 1, 14_480.0, 1.0)], "plain"), WINDOW)
    assert (ahead[0], back[0]) == (14_480 + 10 * 66, 5 * 66)


def test_messages_that_wait_in_a_socket_fill_packets_together():
    """As counted on a port: a ring of four over 256 KiB sends 12 messages of 32 KiB in 273 packets, one of eight 28
    messages of 16 KiB, which the window has room for, in 12 packets and an announcement each."""
    four, eight = gloo_sends("all_reduce", 1 << 18, 4), gloo_sends("all_reduce", 1 << 18, 8)
    ahead, back = (each[0] for each in wired(four, WINDOW))
    assert (ahead - 12 * (32_768 + 96)) / 66 == 273
    assert back == 66 * 137 + 48 * 12
    ahead, back = (each[0] for each in wired(eight, WINDOW))
    assert (ahead - 28 * (16_384 + 96)) / 66 == 28 * 13
    assert back == 28 * (66 * 6.5 + 114)


def test_messages_of_a_pair_add_up():
    found = pairs_of(sends_of([(0, 1, 1000.0, 2.0), (0, 1, 1000.0, 3.0), (1, 0, 10.0, 1.0)]))
    assert list(zip(found.source, found.target, strict=True)) == [(0, 1), (1, 0)]
    assert found.ahead[0] == 5 * (1000 + 48 + 66 + 114)
    assert pairs_of(sends_of(())).ahead.size == 0
    assert table_sends(np.array([[0.0, 5.0], [0.0, 0.0]]), "plain").count.sum() == 1


def test_what_gloo_does_not_do_is_refused():
    with pytest.raises(ValueError, match="scan"):
        gloo_sends("scan", 1.0, 4)
