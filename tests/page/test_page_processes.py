"""Processes that answer: kept warm, ended when it takes too long or nobody waits, and another takes their place."""

import asyncio
import json
import os
import sys
from pathlib import Path

import pytest

from shardwise.show.page.workers import Asked, Busy, Pool, Progress, TooLong

FAKE = [sys.executable, str(Path(__file__).with_name("fake_worker.py"))]


def asked(*words):
    return Asked(list(words), {})


def run(work, seconds=30.0, size=1):
    """What `work` gives, with a pool that is closed in any case; then no process of it is left."""

    async def whole():
        pool = Pool(FAKE, seconds, size)
        await pool.open()
        started = set(pool._all)
        try:
            return await work(pool)
        finally:
            started |= pool._all
            await pool.close()
            assert all(process.returncode is not None for process in started)

    return asyncio.run(whole())


def test_one_process_answers_again_and_again():
    async def work(pool):
        told = []
        first = await pool.ask(asked("a", "b"), told.append)
        second = await pool.ask(asked("c"))
        return json.loads(first.out), json.loads(second.out), told

    first, second, told = run(work)
    assert first["words"] == ["a", "b"]
    assert first["pid"] == second["pid"]
    assert told[0] == Progress("things", 1, 2)
    assert told[1:] == [[{"step_s": 1.5}]]


def test_what_takes_too_long_is_ended_and_the_next_is_answered():
    async def work(pool):
        before = next(iter(pool._all)).pid
        with pytest.raises(TooLong):
            await pool.ask(asked("sleep"))
        pool.seconds = 30.0
        return before, json.loads((await pool.ask(asked("a"))).out)["pid"]

    before, after = run(work, seconds=0.2)
    assert before != after
    with pytest.raises(ProcessLookupError):
        os.kill(before, 0)


def test_whoever_goes_takes_the_work_along():
    async def work(pool):
        process = next(iter(pool._all))
        going = asyncio.create_task(pool.ask(asked("sleep")))
        await asyncio.sleep(0.1)
        going.cancel()
        with pytest.raises(asyncio.CancelledError):
            await going
        await asyncio.wait_for(process.wait(), 5)
        return process.returncode, json.loads((await pool.ask(asked("a"))).out)["words"]

    assert run(work) == (-9, ["a"])


def test_a_process_that_dies_is_told_of_and_replaced():
    async def work(pool):
        return await pool.ask(asked("die")), await pool.ask(asked("a"))

    died, then = run(work)
    assert died.code == 70
    assert "ended" in died.err
    assert then.code == 0


def test_too_many_are_turned_away(monkeypatch):
    monkeypatch.setattr("shardwise.show.page.workers.MOST_WAITING", 1)

    async def work(pool):
        waits = asyncio.create_task(pool.ask(asked("sleep")))
        await asyncio.sleep(0.05)
        with pytest.raises(Busy):
            await pool.ask(asked("a"))
        waits.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waits

    run(work)
