"""The event loop: bytes are conserved, pauses lose nothing, queues grow with senders, losses cost what they should."""

from dataclasses import fields

import numpy as np
import pytest
from msgspec.structs import replace
from small_nets import CARD, chain, into_one, star, transfers

from shardwise.fabric.packets import LAYERS, PacketNetwork, Rules, simulated

PFC = Rules(headroom_bytes=120e3, mark_low_bytes=60e3, mark_high_bytes=240e3, buffer_bytes=2e6)
DROP = Rules(layer="drop", control="none", buffer_bytes=200e3, threshold=1.0)
CREDITS = Rules(layer="credits", control="none")
PACKET = 4096 + 82


def rules_of(layer):
    return {"pfc": PFC, "drop": DROP, "credits": CREDITS}[layer]


class TestWhole:
    @pytest.mark.parametrize("layer", LAYERS)
    def test_every_byte_arrives_once_and_links_carry_what_was_sent(self, layer):
        network, asked = into_one(5, 150e3)
        found = simulated(network, asked, rules_of(layer))
        assert np.isfinite(found.done_s).all()
        packets = -(-150_000 // 4096)
        once = 150_000 + packets * 82
        again = found.resent * PACKET
        # a card sends each packet once and what was lost again; the port carries what was not dropped
        assert (found.sent_bytes[1:5] >= once).all()
        assert (found.sent_bytes[1:5] <= once + again).all()
        if not found.drops.sum():
            assert found.sent_bytes[5] == 4 * once == found.sent_bytes[1:5].sum()
            assert not found.resent.any()

    def test_the_same_seed_gives_the_same_run_and_another_another(self):
        network, asked = into_one(6, 100e3)
        first, again, other = (simulated(network, asked, PFC, seed) for seed in (3, 3, 4))
        for field in fields(first):
            assert np.array_equal(getattr(first, field.name), getattr(again, field.name)), field.name
        assert not np.array_equal(first.done_s, other.done_s)

    def test_one_transfer_alone_takes_its_bytes_over_the_rate(self):
        network = star(2)
        found = simulated(network, transfers([[0, 3]], [400e3]), PFC)
        wire = (400_000 + 98 * 82) / CARD
        assert found.seconds == pytest.approx(wire + 2e-6 + PACKET / CARD, rel=0.05)

    def test_tables_that_are_too_small_are_made_larger_to_the_same_end(self):
        # go-back-n has more copies under way than there are packets
        network, asked = into_one(6, 60e3)
        found = simulated(network, asked, replace(DROP, retransmit="go-back-n", buffer_bytes=60e3, timeout_s=1e-4))
        assert np.isfinite(found.done_s).all()
        assert found.drops.sum() > 0


class TestQueues:
    def test_the_queue_of_an_incast_grows_with_its_senders(self):
        deepest = []
        for cards in (3, 5, 9):
            network, asked = into_one(cards, 80e3)
            deepest.append(int(simulated(network, asked, replace(DROP, buffer_bytes=64e6)).deepest_bytes[cards]))
        assert deepest[0] < deepest[1] < deepest[2]
        # (n - 1 senders - 1) x the message, at most, and nearly that where nothing slows them
        assert deepest[2] == pytest.approx(7 * 80e3, rel=0.15)

    def test_what_is_told_over_time_has_the_deepest_in_it(self):
        network, asked = into_one(5, 80e3)
        found = simulated(network, asked, PFC)
        assert found.queue(5).max() == found.deepest_bytes[5]
        assert found.bin_s * len(found.queue(5)) == pytest.approx(found.seconds, rel=0.1)

    def test_marks_keep_the_queue_short(self):
        # long enough for the notifications of 50 us to be heard
        network, asked = star(5, rate=5e9), into_one(5, 1e6)[1]
        marked = simulated(network, asked, replace(PFC, buffer_bytes=64e6))
        blind = simulated(network, asked, replace(PFC, buffer_bytes=64e6, mark_low_bytes=0.0, mark_high_bytes=0.0))
        assert marked.notifications > 0
        assert blind.notifications == 0
        assert marked.deepest_bytes[5] < 0.7 * blind.deepest_bytes[5]

    def test_a_dynamic_threshold_leaves_a_port_a_part_of_the_buffer(self):
        network, asked = into_one(5, 200e3)
        found = simulated(network, asked, replace(DROP, buffer_bytes=300e3, threshold=0.5, timeout_s=1e-4))
        # alone it may hold x = 0.5 (buffer - x)
        assert found.deepest_bytes[5] <= 100e3 + PACKET
        assert found.deepest_bytes[5] > 90e3
        assert found.drops[5] > 0


class TestPauses:
    def test_enough_headroom_loses_nothing_and_too_little_does(self):
        network, asked = into_one(9, 150e3)
        tight = replace(PFC, buffer_bytes=200e3, xoff_bytes=15e3, mark_low_bytes=0.0, mark_high_bytes=0.0)
        # the way there and back at line rate, the packet being sent and the one that arrives
        enough = simulated(network, asked, replace(tight, headroom_bytes=CARD * 2e-6 + 2 * PACKET))
        little = simulated(network, asked, replace(tight, headroom_bytes=8e3))
        assert enough.pauses.sum() > 0
        assert enough.drops.sum() == 0
        assert enough.headroom_bytes.max() <= CARD * 2e-6 + 2 * PACKET
        assert little.drops.sum() > 0

    def test_a_pause_spreads_to_who_sends_and_holds_up_the_innocent(self):
        network, ways = chain(victim=1, hot=2)
        rules = replace(PFC, buffer_bytes=400e3, xoff_bytes=40e3, control="none")
        found = simulated(network, transfers(ways, [200e3] * 3), rules)
        alone = simulated(network, transfers(ways[2:], [200e3]), rules)
        # the slow port (4) stops the link between the switches (3), that stops the cards (0 and 1)
        edges = {tuple(row) for row in found.pause_log.tolist()}
        assert (3, 4) in edges
        assert {(0, 3), (1, 3)} <= edges
        assert found.paused_s[3] > 0
        assert found.drops.sum() == 0
        assert found.done_s[2] > 2.0 * alone.done_s[0]

    def test_credits_lose_nothing_and_pause_nobody(self):
        network, ways = chain(victim=1, hot=2)
        found = simulated(network, transfers(ways, [200e3] * 3), CREDITS)
        assert np.isfinite(found.done_s).all()
        assert found.drops.sum() == found.pauses.sum() == found.marks.sum() == 0
        # at the second switch waits no more than the credits of the link to it
        assert found.deepest_bytes[4] <= CREDITS.credit_bytes


class TestLosses:
    def test_go_back_n_sends_more_again_and_takes_longer_than_selective(self):
        network, asked = star(2), transfers([[0, 3]], [2e6])
        one, other = (
            simulated(network, asked, replace(DROP, loss=0.01, retransmit=how), 1) for how in ("go-back-n", "selective")
        )
        assert one.lost > 3
        assert one.resent.sum() > 3 * other.resent.sum()
        assert one.seconds > 1.1 * other.seconds
        assert other.resent.sum() >= other.lost

    def test_the_last_packet_waits_for_the_timer(self):
        network, asked = star(2), transfers([[0, 3]], [4000])
        rules = replace(DROP, loss=0.4, timeout_s=1e-3)
        run = next(found for seed in range(20) if (found := simulated(network, asked, rules, seed)).lost)
        assert run.seconds > 1e-3
        assert run.timeouts.sum() >= 1

    def test_sprayed_packets_overtake_and_only_selective_bears_it(self):
        # two ways to one card, one of which is longer
        network = PacketNetwork(
            np.full(6, CARD), np.array([1e-6, 1e-6, 9e-6, 1e-6, 1e-6, 1e-6]),
            np.array([-1, 0, 0, 1, 2, 3]), np.array([0, 1, 2, 3, 3, -1]), CARD,
        )  # fmt: skip
        asked = transfers([[0, 1, 3, 5], [0, 2, 4, 5]], [300e3], [2])
        patient = simulated(network, asked, replace(DROP, reorder=256))
        strict = simulated(network, asked, replace(DROP, retransmit="go-back-n"))
        assert patient.resent.sum() == 0
        assert strict.resent.sum() > 0
        assert strict.seconds > patient.seconds


class TestWindows:
    RULES = Rules(
        payload=1448,
        header=66,
        layer="drop",
        threshold=0.0,
        buffer_bytes=1e6,
        control="cubic",
        timeout_s=0.2,
        ack_every=2,
    )

    def test_slow_links_with_room_lose_nothing(self):
        network = star(5, rate=5e6, delay=50e-6)
        found = simulated(network, into_one(5, 60e3)[1], self.RULES)
        assert found.drops.sum() == 0
        assert found.seconds == pytest.approx(4 * 60e3 * 1514 / 1448 / 5e6, rel=0.1)

    def test_little_room_waits_for_timers(self):
        network = star(9, rate=5e6, delay=50e-6)
        asked = into_one(9, 60e3)[1]
        wide, small = (simulated(network, asked, replace(self.RULES, buffer_bytes=room)) for room in (1e6, 20e3))
        assert small.drops.sum() > 20
        assert small.timeouts.sum() >= 1
        assert small.seconds > wide.seconds + 0.1


@pytest.mark.parametrize(("field", "value"), [("layer", "pfcc"), ("retransmit", "gbn"), ("control", "reno")])
def test_rules_that_do_not_exist_are_refused_in_one_line(field, value):
    with pytest.raises(ValueError, match=f"^{field}: .*(write|did you mean)"):
        Rules(**{field: value})


def test_half_of_all_packets_cannot_be_lost():
    with pytest.raises(ValueError, match=r"^lost: 0\.9 is out of range; write"):
        Rules(loss=0.9)
