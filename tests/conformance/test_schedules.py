"""Every schedule file keeps the contract: its order is complete and can run, and its laws are what the order does."""

from collections import Counter
from itertools import product

import numpy as np
import pytest
from msgspec.structs import replace

from schedules.unit_clock import most_held, run
from shardwise.plugins.pipeline import needs, schedule_names
from shardwise.plugins.schedules import schedules
from shardwise.plugins.schedules._contract import Schedule
from shardwise.spec.policy import Policy

SCHEDULES = schedule_names()

CHUNKS = (1, 2, 3, 4)
STAGES = (1, 2, 3, 4, 5, 6, 8, 11, 16)
MICRO_BATCHES = (1, 2, 3, 4, 5, 6, 8, 12, 16, 22, 31, 32, 33, 48, 64)


def legal_sizes(schedule: Schedule, stages, micro_batches) -> list[tuple[int, int, int]]:
    return [size for size in product(stages, CHUNKS, micro_batches) if not schedule.legal(*size)]


def test_every_schedule_can_be_asked_for() -> None:
    assert set(schedules()) == set(SCHEDULES)
    assert SCHEDULES[:3] == ("1f1b", "interleaved", "gpipe"), "advice names the plainest first"
    assert all(Policy(schedule=name).schedule == name for name in SCHEDULES)


@pytest.mark.parametrize("name", SCHEDULES)
def test_contract(name: str) -> None:
    schedule = schedules()[name]
    assert schedule.name == name
    assert schedule.summary
    sizes = legal_sizes(schedule, STAGES, MICRO_BATCHES)
    assert sizes
    for pp, vpp, micro_batches in sizes:
        held = schedule.in_flight(np.arange(pp), pp, vpp, micro_batches)
        assert (held > 0).all()
        assert (schedule.corners is not None) == schedule.splits_backward
        assert (held <= micro_batches).all()
        falls, rises = (np.diff(held) <= 0).all(), (np.diff(held) >= 0).all()
        assert falls or rises, "the closed form looks at the first and the last of equal stages only"
        assert schedule.idle(pp, vpp, micro_batches) >= 0
        assert vpp in {"one": (1,), "two": (2,), "many": CHUNKS[1:]}[schedule.chunks]


@pytest.mark.parametrize("name", SCHEDULES)
def test_laws_take_columns(name: str) -> None:
    schedule = schedules()[name]
    pp, vpp, micro_batches = np.array(legal_sizes(schedule, STAGES, MICRO_BATCHES), dtype=np.float64).T
    idle = schedule.idle(pp, vpp, micro_batches)
    held = schedule.in_flight(0 * pp, pp, vpp, micro_batches)
    assert idle.shape == pp.shape == held.shape
    one_by_one = zip(pp, vpp, micro_batches, strict=True)
    for i, (p, v, m) in enumerate(one_by_one):
        assert idle[i] == schedule.idle(p, v, m)
        assert held[i] == schedule.in_flight(0.0, p, v, m)


def check_order(schedule: Schedule, pp: int, vpp: int, micro_batches: int) -> None:
    done = run(schedule, pp, vpp, micro_batches)  # raises where a piece can never start
    check_pieces(schedule, pp, vpp, micro_batches, done.orders)
    work = 3 * vpp * micro_batches
    assert all(done.busy(rank) == work for rank in range(pp))
    assert (done.length - work) / (3 * vpp) == pytest.approx(float(schedule.idle(pp, vpp, micro_batches)))
    for rank, order in enumerate(done.orders):
        assert most_held(order) / vpp == pytest.approx(float(schedule.in_flight(rank, pp, vpp, micro_batches)))


@pytest.mark.parametrize("name", [name for name in SCHEDULES if schedules()[name].splits_backward])
@pytest.mark.parametrize("waiting", [0.0, 0.9, 1.0, 1.5, 16.0])
def test_corners_are_the_fullest_moments(name: str, waiting: float) -> None:
    """`waiting`: what a micro-batch keeps while only its weight gradient is missing, over what it kept before."""
    schedule = schedules()[name]
    for pp, vpp, micro_batches in legal_sizes(schedule, (1, 2, 3, 4, 6, 8), (1, 2, 3, 4, 6, 8, 12, 16)):
        for rank, order in enumerate(schedule.order(pp, vpp, micro_batches)):
            moments = [float(a + waiting * b) for a, b in schedule.corners(rank, pp, vpp, micro_batches)]
            seen = fullest(order, waiting) / vpp
            assert max(moments) == pytest.approx(seen), (pp, vpp, micro_batches, rank)


def fullest(order, waiting: float) -> float:
    held = most = 0.0
    for action in order:
        held += {"F": 1.0, "B": -1.0, "I": waiting - 1.0, "W": -waiting}[action.kind]
        most = max(most, held)
    return most


def check_pieces(schedule: Schedule, pp: int, vpp: int, micro_batches: int, orders) -> None:
    """Every stage does each micro-batch once, on the rank that holds it, a chunk's pieces in order."""
    seen: Counter[tuple[str, int, int]] = Counter()
    for rank, order in enumerate(orders):
        for chunk in {a.chunk for a in order}:
            stage = schedule.stage(rank, chunk, pp, vpp)
            own = [a for a in order if a.chunk == chunk]
            for kind in "FW":
                numbers = [a.micro_batch for a in own if a.kind == kind]
                assert numbers == sorted(numbers), (schedule.name, kind)
            seen.update((a.kind, stage, a.micro_batch) for a in own)
            split = {a.micro_batch for a in own if a.kind == "I"}
            assert split == {a.micro_batch for a in own if a.kind == "W"}
            assert split.isdisjoint({a.micro_batch for a in own if a.kind == "B"})
        assert not order[-1].joined, "a joined piece has a next one"
    pairs = set(product(range(pp * vpp), range(micro_batches)))
    assert max(seen.values()) == 1
    assert {(s, m) for kind, s, m in seen if kind == "F"} == pairs
    assert {(s, m) for kind, s, m in seen if kind in "BI"} == pairs
    assert any(kind == "I" for kind, _, _ in seen) == schedule.splits_backward


@pytest.mark.parametrize("name", SCHEDULES)
def test_order_runs_and_does_what_the_laws_say(name: str) -> None:
    schedule = schedules()[name]
    for size in legal_sizes(schedule, STAGES, MICRO_BATCHES):
        if np.prod(size) <= 1024:
            check_order(schedule, *size)


@pytest.mark.slow
@pytest.mark.parametrize("name", SCHEDULES)
def test_order_of_every_size(name: str) -> None:
    schedule = schedules()[name]
    for size in legal_sizes(schedule, range(1, 17), range(1, 65)):
        check_order(schedule, *size)


@pytest.mark.parametrize("name", SCHEDULES)
def test_refusals_say_what_is_needed(name: str) -> None:
    schedule = schedules()[name]
    refused = [r for size in product(STAGES, CHUNKS, MICRO_BATCHES) if (r := schedule.legal(*size))]
    assert refused
    assert all(name in reason and needs()[name].text() in reason for reason in refused)


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_broken_order_is_noticed(name: str) -> None:
    """The clock and the counts above can fail: for a rank that drops a piece, or begins with its backwards."""
    schedule = schedules()[name]
    pp, vpp, micro_batches = legal_sizes(schedule, (1, 2), (4, 8))[-1]
    orders = schedule.order(pp, vpp, micro_batches)
    dropped = [orders[0][1:], *orders[1:]]
    with pytest.raises(AssertionError):
        check_pieces(schedule, pp, vpp, micro_batches, dropped)
    backwards = [sorted(orders[0], key=lambda a: a.kind == "F"), *orders[1:]]
    with pytest.raises(AssertionError):
        run(with_order(schedule, backwards), pp, vpp, micro_batches)


def with_order(schedule: Schedule, orders) -> Schedule:
    return replace(schedule, order=lambda *_: orders)
