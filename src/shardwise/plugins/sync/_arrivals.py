"""Asynchronous workers on a common clock: worker i delivers at every periods[i]-th tick, so runs can be repeated.

One call of `optimizer.step()` is one tick. A worker with a period of 4 is four times slower; what it delivers is four
ticks old. A real server that takes gradients as they come is not started here.
"""

from shardwise.plugins.sync._array import Array
from shardwise.plugins.sync._asynchronous import WorkerCycle


def check_periods(periods: tuple[int, ...]) -> None:
    if not periods or any(period < 1 for period in periods):
        raise ValueError(f"periods: {periods}; write the ticks each worker needs, whole numbers of 1 or more")


def arrivals(periods: tuple[int, ...], n: int, t: int) -> tuple[int, ...]:
    return tuple(i for i in range(n) if (t + 1) % periods[i % len(periods)] == 0)


def cycles_of(periods: tuple[int, ...], n: int, *, one_step: bool) -> tuple[WorkerCycle, ...]:
    """one_step: a slow worker does one in its whole period; else one at every tick."""
    ticks = [periods[i % len(periods)] for i in range(n)]
    return tuple(WorkerCycle(each, 1 if one_step else each) for each in ticks)


def chosen(new: Array, old: Array, mask: Array) -> Array:
    import torch

    return torch.where(mask > 0, new, old)
