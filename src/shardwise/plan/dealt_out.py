"""A scan dealt out to several processes."""

from collections.abc import Callable, Iterator

from shardwise.arrays import Floats, Ints
from shardwise.plan.keep import Keep
from shardwise.plan.scanning import FRAMES, Pricing, Scanning, looking
from shardwise.plan.space import Space
from shardwise.plugins.engines._workers import Died, WorkerPool

FIRST = 64
"""frames of the first part"""
Task = tuple[Keep, Ints, Floats, bool]


def dealt_out(scan: Scanning, keep: Keep, order: Ints, told: Callable[[int], None]) -> None:
    """Each task begins with what is known when it is handed out, so that bounds found by one serve all. What a process
    that died was looking at is looked at here. `told`: how many frames are left."""
    parts, left = list(_growing(order)), len(order)

    def tasks() -> Iterator[Task]:
        for part in parts:
            yield keep.bounds(), part, scan.floors[part], scan.bounded

    workers: WorkerPool[Task, Keep] = WorkerPool(
        min(scan.processes, len(parts)), _look, _begin, scan.pricing, scan.space
    )
    for place, found in workers.run(tasks()):
        part = parts[place]
        if isinstance(found, Died):
            looking(scan.pricing, scan.space, keep, bounded=scan.bounded)(part, scan.floors[part])
        else:
            keep.merge(found)
        left -= len(part)
        told(left)


def _growing(order: Ints) -> Iterator[Ints]:
    """Small parts first: their answers bound what follows, and Ctrl-C finds something to keep."""
    begin, size = 0, FIRST
    while begin < len(order):
        yield order[begin : begin + size]
        begin, size = begin + size, min(2 * size, FRAMES)


def _begin(pricing: Pricing, space: Space) -> tuple[Pricing, Space]:
    return pricing, space


def _look(given: tuple[Pricing, Space], task: Task) -> Keep:
    keep, frames, floors, bounded = task
    looking(*given, keep, bounded=bounded)(frames, floors)
    return keep
