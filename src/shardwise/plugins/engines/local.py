"""Processes of this machine. The first shards run in this one: others are started only where that saves time."""

import time
from collections.abc import Sequence

from shardwise.plugins.engines._contract import Answers, Engine, Lost, Setup, Work
from shardwise.plugins.engines._cores import cores

WORTH_S = 4.0
"""work left from which on starting processes (about half a second each) pays"""


def _start(work: Work, shards: Sequence[bytes], setup: Setup) -> Answers:
    processes = cores() if setup.jobs is None else setup.jobs
    done = 0
    while done < len(shards):
        if setup.jobs is not None and processes > 1:
            break
        begun = time.monotonic()
        yield done, work(shards[done])
        done += 1
        if processes > 1 and (time.monotonic() - begun) * (len(shards) - done) > WORTH_S:
            break
    if done < len(shards):
        yield from _pooled(work, shards, range(done, len(shards)), processes)


def _pooled(work: Work, shards: Sequence[bytes], places: range, processes: int) -> Answers:
    from shardwise.plugins.engines._workers import Died, WorkerPool  # slow to import, and few sweeps need it

    workers: WorkerPool[bytes, bytes] = WorkerPool(min(processes, len(places)), _work, _same, work)
    for place, answer in workers.run(shards[place] for place in places):
        yield places[place], Lost(f"its process {answer.why}") if isinstance(answer, Died) else answer


def _same(work: Work) -> Work:
    return work


def _work(work: Work, shard: bytes) -> bytes:
    return work(shard)


ENGINE = Engine(name="local", summary="processes of this machine", start=_start)
