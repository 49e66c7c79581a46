"""Processes that work through tasks: what is asked of them is answered, and then they end."""

import signal

import pytest

from shardwise.plugins.engines._workers import WorkerPool


def _made(value: int) -> int:
    return value


def _added(made: int, task: int) -> int:
    return made + task


@pytest.fixture
def in_time():
    """A wait for nobody would never end."""
    before = signal.signal(signal.SIGALRM, signal.getsignal(signal.SIGALRM))

    def late(*_: object) -> None:
        raise TimeoutError("the workers wait for nobody")

    signal.signal(signal.SIGALRM, late)
    signal.alarm(60)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.usefixtures("in_time")
@pytest.mark.parametrize(("processes", "tasks"), [(1, 0), (1, 1), (1, 3), (2, 2), (2, 3)])
def test_it_ends_when_the_last_answers_are_there(processes, tasks):
    found = dict(WorkerPool(processes, _added, _made, 10).run(range(tasks)))
    assert found == {place: 10 + place for place in range(tasks)}
