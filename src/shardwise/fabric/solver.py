"""Max-min fair rates, and how long flows take at them.

A link with room R and flows of weight W left gives each a rate of R / W. A link all of whose flows get no less
elsewhere is their bottleneck: they are settled at its rate, their part is taken out of every other link, and so on. All
such links are settled at once, not only the globally slowest: what is taken out elsewhere is never more than a fair
share there, so no other link's rate can fall below (Bertsekas and Gallager, Data Networks, 6.5.2; progressive filling
gives the same rates, one link at a time).
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shardwise.arrays import Flags, Floats, Ints

Small = NDArray[np.int32]

SAME = 1e-9
"""rates and times closer than this, relatively, are one"""


def max_min(links: Ints, capacity: Floats, *, weight: Floats | None = None, count: Floats | None = None) -> Floats:
    """bytes/s of each flow; infinite for one that takes no link.

    `links`: flows x places, len(capacity) where a place is free. `weight`: bytes on the link for each byte of the flow,
    in the same shape. `count`: how many equal flows a row stands for.
    """
    free = len(capacity)
    room = np.append(capacity.astype(np.float64), np.inf)
    rates = np.full(len(links), np.inf)
    active = np.flatnonzero((links < free).any(axis=1))
    if not len(active):
        return rates
    used = np.flatnonzero((links < free).any(axis=0))
    columns = [np.ascontiguousarray(links[active, place].astype(np.int32)) for place in used]
    loads = _loads(active, used, weight, count)
    flows = _sums(columns, None, free)
    demand = flows if loads is None else _sums(columns, loads, free)
    while len(active):
        share = np.full(free + 1, np.inf)
        np.divide(room, demand, out=share, where=flows > 0)
        offered = [share[column] for column in columns]
        lowest = np.minimum.reduce(offered)
        settled = _settled(columns, offered, lowest * (1.0 + SAME), free)
        rate = lowest[settled]
        rates[active[settled]] = rate
        leaving = [column[settled] for column in columns]
        flows -= _sums(leaving, None, free)
        taken = [rate] * len(leaving)
        if loads is not None:
            weights = [load[settled] for load in loads]
            demand -= _sums(leaving, weights, free)
            taken = [rate * w for w in weights]
        room[:free] = np.maximum(room - _sums(leaving, taken, free), 0.0)[:free]
        keep = ~settled
        active, columns = active[keep], [column[keep] for column in columns]
        loads = None if loads is None else [load[keep] for load in loads]
    return rates


def _settled(columns: list[Small], offered: list[Floats], bound: Floats, free: int) -> Flags:
    """Flows one of whose links is the bottleneck of all that take it."""
    bottleneck = np.ones(free + 1, dtype=np.bool_)
    for column, rate in zip(columns, offered, strict=True):
        bottleneck[column[rate > bound]] = False
    bottleneck[free] = False
    return np.asarray(np.logical_or.reduce([bottleneck[column] for column in columns]))


def _sums(columns: list[Small], values: list[Floats] | None, free: int) -> Floats:
    """Per link: how many entries, or the sum of their values; nothing for the place that is no link."""
    weights = None if values is None else np.concatenate(values)
    total = np.bincount(np.concatenate(columns), weights=weights, minlength=free + 1).astype(np.float64)
    total[free] = 0.0
    return total


def _loads(active: Ints, used: Ints, weight: Floats | None, count: Floats | None) -> list[Floats] | None:
    """Weight of each entry, by place; None where all are 1."""
    if weight is None and count is None:
        return None
    each = np.ones(len(active)) if count is None else count[active]
    return [each if weight is None else each * weight[active, place] for place in used]


@dataclass(frozen=True)
class Flows:
    """Flows that start together. Equal ones (same links, same size) are one row with a count."""

    links: Ints
    bytes: Floats
    """of one flow"""
    weight: Floats | None = None
    count: Floats | None = None

    def __len__(self) -> int:
        return len(self.bytes)

    def folded(self) -> "Flows":
        if not len(self):
            return self
        weight = np.zeros((len(self), 0)) if self.weight is None else self.weight
        key = np.column_stack([np.sort(self.links, axis=1) if self.weight is None else self.links, self.bytes, weight])
        telling = key[:, (key != key[0]).any(axis=0)]
        order = np.lexsort(telling.T) if telling.shape[1] else np.arange(len(key))
        new = np.append(True, (np.diff(key[order], axis=0) != 0).any(axis=1))
        first = order[new]
        ones = np.ones(len(self)) if self.count is None else self.count
        count = np.bincount(np.cumsum(new) - 1, weights=ones[order]).astype(np.float64)
        return Flows(self.links[first], self.bytes[first], None if self.weight is None else self.weight[first], count)

    def link_bytes(self, links: int) -> Floats:
        """Bytes over each link."""
        each = self.bytes if self.count is None else self.bytes * self.count
        wide = np.broadcast_to(each[:, None], self.links.shape)
        wide = wide if self.weight is None else wide * self.weight
        total = np.bincount(self.links.ravel(), weights=wide.ravel(), minlength=links + 1)
        return total[:links].astype(np.float64)


def joined(parts: list[Flows], free: int) -> Flows:
    """All of them at once; `free` is the number of links."""
    width = max((p.links.shape[1] for p in parts), default=1)
    links = [np.pad(p.links, ((0, 0), (0, width - p.links.shape[1])), constant_values=free) for p in parts]
    weights = None
    if any(p.weight is not None for p in parts):
        tables = [np.ones(p.links.shape) if p.weight is None else p.weight for p in parts]
        weights = np.concatenate([np.pad(w, ((0, 0), (0, width - w.shape[1]))) for w in tables])
    return Flows(
        links=np.concatenate(links),
        bytes=np.concatenate([p.bytes for p in parts]),
        weight=weights,
        count=np.concatenate([np.ones(len(p)) if p.count is None else p.count for p in parts]),
    )


def finish_times(flows: Flows, capacity: Floats, *, within: float = SAME) -> Floats:
    """Seconds until each flow is over, all starting at 0; whoever remains shares anew when a flow ends.

    `within`: flows that end inside this share of the time passed are taken to end together, which bounds the events.
    """
    ends = np.zeros(len(flows))
    left = flows.bytes.astype(np.float64).copy()
    open_ = np.flatnonzero(left > 0)
    now = 0.0
    while len(open_):
        rates = max_min(
            flows.links[open_], capacity,
            weight=None if flows.weight is None else flows.weight[open_],
            count=None if flows.count is None else flows.count[open_],
        )  # fmt: skip
        if not (rates > 0).all():
            raise ValueError("fabric: a flow has no path left (a failed link on its only one)")
        rest = left[open_] / rates
        step = float(rest.min())
        over = rest <= step + within * (now + step)
        ends[open_[over]] = now + rest[over]
        now += step
        left[open_] -= step * rates
        open_ = open_[~over]
    return ends
