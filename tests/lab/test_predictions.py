"""What the flow model says of a lab: bytes by the algorithms' own laws, ratios that can be worked out by hand."""

from math import ceil

import numpy as np
import pytest
from msgspec.structs import replace

from shardwise_lab.cases import HOT, LabCase, uneven
from shardwise_lab.demos._contract import CARD as DEMO_CARD
from shardwise_lab.demos.placed import ACROSS_RAILS, ALIGNED, INTERLEAVED, OVER_RAILS, SLOWED
from shardwise_lab.demos.transfers import PAIRS, _ecmp_seconds, _pair_flows
from shardwise_lab.emulated import emulated, emulated_of, named_cluster
from shardwise_lab.knobs import Knobs
from shardwise_lab.measured import check_bounds
from shardwise_lab.order import LabWorld, step_cases
from shardwise_lab.predict import blind, in_turn, predicted

MEGA = 1 << 20
CARD = 40e6 / 8


def seconds(name, op, order, *, size=MEGA, **knobs):
    fabric = emulated_of(name, Knobs(card_bytes_per_s=CARD, **knobs))
    return predicted(fabric, LabCase(op=op, bytes=size), order, 0.0).seconds


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_bytes_are_those_of_the_algorithms(ranks):
    part = (ranks - 1) / ranks * MEGA
    for op, sent in (("all_reduce", 2 * part), ("all_gather", part), ("reduce_scatter", 2 * part),
                     ("all_to_all", part), ("shift", MEGA)):  # fmt: skip
        table = LabCase(op=op, bytes=MEGA).matrix(ranks)
        assert table.sum(axis=1) == pytest.approx(np.full(ranks, sent)), op
        assert not table.diagonal().any()


def test_a_ring_is_its_neighbours_only():
    table = LabCase(op="all_reduce", bytes=MEGA).matrix(4)
    assert {(a, b) for a, b in zip(*np.nonzero(table), strict=True)} == {(1, 0), (2, 1), (3, 2), (0, 3)}
    both = LabCase(op="gossip", bytes=MEGA).matrix(4)
    assert both.sum() == 8 * MEGA
    assert LabCase(op="gossip", bytes=MEGA).matrix(2).sum() == 2 * MEGA


def test_a_hot_expert_gets_more_of_the_same_bytes():
    sizes = uneven(MEGA, 4)
    assert sum(sizes) == pytest.approx(MEGA, rel=1e-4)
    assert sizes[-1] / sizes[0] == pytest.approx(HOT)
    into = LabCase(op="hot_expert", bytes=MEGA).matrix(4).sum(axis=0)
    assert into[3] / into[0] == pytest.approx(HOT)


def test_ring_time_is_bytes_on_the_wire_less_one_bucket():
    burst = 16_384
    # twelve segments of an eighth with gloo's 96 bytes, in packets of 1448 with 66 of headers; every second is answered
    stream = 12 * (MEGA / 8 + 96)
    packets = ceil(stream / 1448)
    sent = stream + 66 * packets + 66 * ceil(packets / 2) + 48 * 12
    assert seconds("star4", "all_reduce", (0, 1, 2, 3)) == pytest.approx((sent - burst) / CARD, rel=1e-6)


def test_interleaving_costs_what_crosses():
    long = 64 * MEGA
    aligned, mixed = (seconds("two-leaves", "all_reduce", order, size=long) for order in (ALIGNED, INTERLEAVED))
    assert mixed / aligned == pytest.approx(4.0, rel=0.01)
    far = [seconds("two-leaves", "all_to_all", order, size=long) for order in (ALIGNED, INTERLEAVED)]
    assert far[0] == pytest.approx(far[1])


def test_rails_and_slow_links():
    along, across = (seconds("rails", "all_reduce", order, size=64 * MEGA) for order in (OVER_RAILS, ACROSS_RAILS))
    assert across / along == pytest.approx(4.0, rel=0.03)
    well, slow = (seconds("star4", "all_reduce", (0, 1, 2, 3), size=64 * MEGA, slow=how)
                  for how in ((), ((SLOWED, 0.25),)))  # fmt: skip
    assert slow / well == pytest.approx(4.0, rel=0.01)


def test_only_the_neighbours_of_a_slow_card_wait_in_gossip():
    fabric = emulated_of("star8", Knobs(card_bytes_per_s=CARD, slow=((SLOWED, 0.25),)))
    found = predicted(fabric, LabCase(op="gossip", bytes=16 * MEGA), ALIGNED, 0.0).rank_s
    assert (found > 2 * np.median(found)).sum() == 3


def test_ranks_of_a_ring_are_done_a_round_earlier_for_each_hop_from_a_slow_card():
    """Rank 0 receives from the slow one; as measured: 773, 719, 668, 615, 566, 618, 670, 722 ms."""
    case = LabCase(op="all_reduce", bytes=1 << 19)
    slow, well = (emulated_of("star8", Knobs(card_bytes_per_s=CARD, slow=how)) for how in (((SLOWED, 0.25),), ()))
    found = predicted(slow, case, ALIGNED, 0.0)
    away = np.array([0, 1, 2, 3, 4, 3, 2, 1])
    assert found.rank_s == pytest.approx(found.seconds * (1 - away / 14))
    assert found.rank_s == pytest.approx([0.773, 0.719, 0.668, 0.615, 0.566, 0.618, 0.670, 0.722], rel=0.03)
    even = predicted(well, case, ALIGNED, 0.0)
    assert even.rank_s == pytest.approx(np.full(8, even.seconds))


def test_the_blind_model_knows_no_order():
    fabric = emulated_of("two-leaves", Knobs(card_bytes_per_s=CARD))
    case = LabCase(op="all_reduce", bytes=MEGA)
    assert blind(fabric, [case], ALIGNED) == blind(fabric, [case], INTERLEAVED)


def collided(ways: int, seeds: int = 20) -> float:
    """The planner's hash instead of the kernel's: mean over its seeds of the slowest pair's part of line rate."""
    cluster, own = named_cluster("leaf-spine")
    usual, found = replace(own, connections=ways), []
    for seed in range(seeds):
        fabric = emulated(cluster, Knobs(card_bytes_per_s=DEMO_CARD), replace(usual, seed=seed))
        alone = float(_pair_flows(fabric, 1).bytes.sum()) / DEMO_CARD
        found.append(alone / _ecmp_seconds(fabric, len(PAIRS)))
    return sum(found) / len(found)


def test_collisions_are_those_of_balls_in_bins():
    """Four balls in four bins: the fullest has 1, 2, 3, 4 with 24, 180, 48, 4 of 256."""
    exact = (24 + 180 / 2 + 48 / 3 + 4 / 4) / 256
    assert collided(1, seeds=400) == pytest.approx(exact, abs=0.03)
    assert collided(1, 20) < collided(4, 20) < collided(16, 20)


def test_a_sharded_step_moves_twice_the_bytes_of_a_replicated_one_on_gloo():
    fabric = emulated_of("star4", Knobs(card_bytes_per_s=CARD))
    ddp, fsdp = (in_turn(fabric, step_cases(kind, 256), (0, 1, 2, 3)).link_bytes.sum() for kind in ("ddp", "fsdp"))
    # more and shorter messages have more headers
    assert fsdp / ddp == pytest.approx(2.0, rel=0.02)
    payload = [sum(case.matrix(4).sum() for case in step_cases(kind, 256)) for kind in ("ddp", "fsdp")]
    assert payload[1] / payload[0] == pytest.approx(2.0)


def test_time_and_bytes_are_bounded():
    fabric = emulated_of("star4", Knobs(card_bytes_per_s=CARD))
    world = LabWorld(order=(0, 1, 2, 3), cases=(LabCase(op="all_reduce", bytes=64 * MEGA),))
    with pytest.raises(ValueError, match="limit"):
        check_bounds(fabric, [world], 10.0, 1e12)
    with pytest.raises(ValueError, match="sizes"):
        check_bounds(fabric, [world], 1e6, 1e6)
    check_bounds(fabric, [world], 1e6, 1e12)


@pytest.mark.parametrize(("case", "words"), [
    ({"op": "allreduce", "bytes": 1}, "all_reduce"), ({"op": "shift", "bytes": 0}, "sizes"),
    ({"op": "shift", "bytes": 1, "times": 0}, "times"),
])  # fmt: skip
def test_bad_cases_are_refused(case, words):
    with pytest.raises(ValueError, match=words):
        LabCase(**case)
