"""Processes of this machine. The first shards run in this one: others are started only where that saves time."""

import signal
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import active_children, get_context

from shardwise.engines._contract import Answers, Engine, Setup, Work, worker_failed
from shardwise.engines._cores import cores

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
    others = set(active_children())
    # spawned, not forked: a fork copies the locks of threads it does not copy
    context = get_context("spawn")
    with ProcessPoolExecutor(min(processes, len(places)), mp_context=context, initializer=_leave_ctrl_c) as pool:
        futures = {pool.submit(work, shards[place]): place for place in places}
        try:
            for future in as_completed(futures):
                yield futures[future], future.result()
        except BrokenProcessPool as problem:
            raise worker_failed(ENGINE.name, problem) from None
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
            if not all(future.done() for future in futures):
                # what has begun cannot be cancelled, and may take long
                for process in set(active_children()) - others:
                    process.terminate()


def _leave_ctrl_c() -> None:
    """Ctrl-C reaches every process of a terminal; the one that waits for the others answers it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


ENGINE = Engine(name="local", summary="processes of this machine", start=_start)
