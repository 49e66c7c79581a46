"""The core: longest paths over lanes and needs, and nothing else."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardwise.step.tasks.engine import Tasks, again, run


def solved(lanes, needs, duration, delay=None, release=None):
    tasks = Tasks.of(lanes, needs)
    count = sum(map(len, needs))
    late = np.zeros(count) if delay is None else np.array(delay, dtype=float)
    begin = np.zeros(len(duration)) if release is None else np.array(release, dtype=float)
    return tasks, run(tasks, np.array(duration, dtype=float), late, begin)


def test_solved_by_hand():
    # lane 0: a(2) b(3); lane 1: c(1) waits for a; lane 2: d(1) waits for b and, half a unit late, for c
    _, found = solved([2, 1, 1], [[], [], [0], [1, 2]], [2, 3, 1, 1], delay=[0, 0, 2.5])
    assert found.start.tolist() == [0, 2, 2, 5.5]
    assert found.end.tolist() == [2, 5, 3, 6.5]


def test_release_holds_a_task_and_what_follows():
    _, found = solved([2], [[], []], [1, 1], release=[3, 0])
    assert found.start.tolist() == [3, 4]


def test_lanes_that_wait_for_one_another_are_refused():
    with pytest.raises(ValueError, match="wait for one another"):
        solved([1, 1], [[1], [0]], [1, 1])


def test_a_lane_may_be_empty():
    _, found = solved([0, 1, 0], [[]], [4])
    assert found.end.tolist() == [4]


@st.composite
def worlds(draw):
    """Random lanes whose needs point to earlier tasks of a random global order."""
    lanes = draw(st.lists(st.integers(0, 5), min_size=1, max_size=5))
    rng = np.random.default_rng(draw(st.integers(0, 10_000)))
    owner = rng.permutation(np.repeat(np.arange(len(lanes)), lanes))
    starts = np.cumsum([0, *lanes])
    place, number = starts[:-1].copy(), []
    for lane in owner:
        number.append(int(place[lane]))
        place[lane] += 1
    needs = [[] for _ in number]
    for turn, task in enumerate(number):
        needs[task] = rng.choice(number[:turn], min(turn, 2), replace=False).tolist() if turn else []
    return lanes, needs, rng


def slow_and_obvious(lanes, needs, duration, delay, release):
    """Repeat the definition until nothing changes."""
    starts = np.cumsum([0, *lanes])
    first = np.cumsum([0, *map(len, needs)])
    end = np.zeros(len(duration))
    for _ in range(len(duration) + 1):
        for task in range(len(duration)):
            at = release[task]
            if task not in starts:
                at = max(at, end[task - 1])
            for k, need in enumerate(needs[task]):
                at = max(at, end[need] + delay[first[task] + k])
            end[task] = at + duration[task]
    return end


@settings(max_examples=80, deadline=None)
@given(worlds())
def test_the_pass_is_the_definition_and_many_steps_are_many_passes(world):
    lanes, needs, rng = world
    size, count = sum(lanes), sum(map(len, needs))
    duration, delay, release = rng.random((size, 3)), rng.random(count), rng.random(size) * (rng.random(size) > 0.5)
    tasks = Tasks.of(lanes, needs)
    if not size:
        return
    columns = [run(tasks, duration[:, k].copy(), delay, release) for k in range(3)]
    assert np.allclose(columns[0].end, slow_and_obvious(lanes, needs, duration[:, 0], delay, release))
    together = again(tasks, duration, delay, release)
    assert np.allclose(together, np.stack([c.end for c in columns], axis=1))


@settings(max_examples=40, deadline=None)
@given(worlds())
def test_the_order_of_lanes_changes_nothing(world):
    lanes, needs, rng = world
    size, count = sum(lanes), sum(map(len, needs))
    if not size:
        return
    duration, delay = rng.random(size), rng.random(count)
    plain = run(Tasks.of(lanes, needs), duration, delay, np.zeros(size))
    turned = rng.permutation(len(lanes))
    starts, first = np.cumsum([0, *lanes]), np.cumsum([0, *map(len, needs)])
    old = [t for lane in turned for t in range(starts[lane], starts[lane + 1])]
    new = {task: i for i, task in enumerate(old)}
    moved = Tasks.of([lanes[k] for k in turned], [[new[n] for n in needs[t]] for t in old])
    delays = np.array([delay[k] for t in old for k in range(first[t], first[t + 1])])
    assert np.array_equal(run(moved, duration[old], delays, np.zeros(size)).end, plain.end[old])
