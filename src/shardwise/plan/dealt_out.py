"""A scan dealt out to several processes."""

import signal
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from multiprocessing import get_context

from shardwise.plan.keep import Keep
from shardwise.plan.scanning import Floats, Pricing, Progress, Scanning, looking, parts_of
from shardwise.plan.space import Space
from shardwise.spec.policy import Ints


def dealt_out(scan: Scanning, keep: Keep, order: Ints, progress: Progress | None) -> None:
    """Each task begins with what is known when it is handed out, so that bounds found by one serve all."""
    waiting, total, done = list(parts_of(order))[::-1], len(order), 0
    running: dict[Future[Keep], int] = {}
    with _pool(scan.pricing, scan.space, scan.processes) as pool:
        while waiting or running:
            while waiting and len(running) < 2 * scan.processes:
                _, part = waiting.pop()
                task = pool.submit(_task, keep.bounds(), part, scan.floors[part], scan.bounded)
                running[task] = len(part)
            finished, _ = wait(running, return_when=FIRST_COMPLETED)
            for task in finished:
                keep.merge(task.result())
                done += running.pop(task)
                if progress is not None:
                    progress(done, total)


@contextmanager
def _pool(pricing: Pricing, space: Space, processes: int) -> Iterator[ProcessPoolExecutor]:
    # a fresh interpreter each: a progress bar's thread must not be copied in the middle of something
    pool = ProcessPoolExecutor(processes, get_context("spawn"), _begin, (pricing, space))
    try:
        yield pool
        pool.shutdown()
    except BaseException:
        for process in list((pool._processes or {}).values()):
            process.terminate()
        pool.shutdown(wait=False, cancel_futures=True)
        raise


_GIVEN: list[tuple[Pricing, Space]] = []
"""of a worker process: set once when it begins, so that tasks carry frame numbers only"""


def _begin(pricing: Pricing, space: Space) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to answer
    _GIVEN[:] = [(pricing, space)]


def _task(keep: Keep, frames: Ints, floors: Floats, bounded: bool) -> Keep:
    pricing, space = _GIVEN[0]
    looking(pricing, space, keep, bounded=bounded)(frames, floors)
    return keep
