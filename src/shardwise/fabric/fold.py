"""Flows and links that nothing tells apart, told once.

Links of one class have the same capacity and carry the same number of flows of each class; flows of one class have the
same size and take links of the same classes. Max-min rates are unique and know nothing else, so all flows of a class
get the same, and a table of classes gives exactly the rates of the whole (the partition is found as in colour
refinement: colours of neighbours are mixed in until no class splits any more).
"""

import numpy as np
from numpy.typing import NDArray

from shardwise.arrays import Floats, Ints
from shardwise.fabric.links import mixed
from shardwise.fabric.solver import Flows

Colours = NDArray[np.uint64]
MOST_ROUNDS = 64


def classes_of(flows: Flows, capacity: Floats) -> tuple[Flows, Floats, Ints]:
    """(one flow of each class with its links' classes, capacity of each class of links, class of each link)."""
    rows, links, weight = _entries(flows, len(capacity))
    flow, link = _refined(flows, capacity, rows, links, weight)
    kinds, first, of_flow = np.unique(flow, return_index=True, return_inverse=True)
    _, one_link, of_link = np.unique(link, return_index=True, return_inverse=True)
    # what one link of a class carries of each class of flows
    chosen = np.flatnonzero(one_link[of_link[links]] == links)
    pair = of_flow[rows[chosen]] * len(one_link) + of_link[links[chosen]]
    pairs, where = np.unique(pair, return_inverse=True)
    carried = np.bincount(where, weights=weight[chosen]).astype(np.float64)
    table = _table(pairs // len(one_link), pairs % len(one_link), carried, len(kinds), len(one_link))
    return Flows(table[0], flows.bytes[first], table[1]), capacity[one_link], of_link


def _entries(flows: Flows, free: int) -> tuple[Ints, Ints, Floats]:
    """(flow, link, weight) of every link a flow takes."""
    rows, places = np.nonzero(flows.links < free)
    weight = np.ones(len(rows)) if flows.weight is None else flows.weight[rows, places]
    if flows.count is not None:
        weight = weight * flows.count[rows]
    return rows, flows.links[rows, places], weight


def _refined(flows: Flows, capacity: Floats, rows: Ints, links: Ints, weight: Floats) -> tuple[Colours, Colours]:
    count = np.ones(len(flows)) if flows.count is None else flows.count
    flow, link = mixed(bits_of(flows.bytes), bits_of(count)), mixed(bits_of(capacity))
    by_row, by_link = np.argsort(rows, kind="stable"), np.argsort(links, kind="stable")
    load = bits_of(weight)
    seen = (0, 0)
    for _ in range(MOST_ROUNDS):
        flow = mixed(flow, _summed(mixed(load, link[links]), rows, by_row, len(flow)))
        link = mixed(link, _summed(mixed(load, flow[rows]), links, by_link, len(link)))
        now = (len(np.unique(flow)), len(np.unique(link)))
        if now == seen:
            break
        seen = now
    return flow, link


def bits_of(values: Floats) -> NDArray[np.int64]:
    """Equal numbers, equal bits; told apart to ten digits only, as sums in another order differ behind that."""
    scale = 10.0 ** (10 - np.ceil(np.log10(np.clip(np.abs(values), 1e-200, 1e200))))
    return np.asarray((np.round(values * scale) / scale).astype(np.float64).view(np.int64))


def _summed(colours: Colours, place: Ints, order: Ints, size: int) -> Colours:
    """Sum of the colours at each place, which does not depend on their order."""
    total = np.zeros(size, dtype=np.uint64)
    if len(order):
        ordered = place[order]
        starts = np.flatnonzero(np.append(True, np.diff(ordered) != 0))
        total[ordered[starts]] = np.add.reduceat(colours[order], starts)
    return total


def _table(flow: Ints, link: Ints, carried: Floats, flows: int, free: int) -> tuple[Ints, Floats]:
    """Sparse entries as rows of places."""
    order = np.argsort(flow, kind="stable")
    flow, link, carried = flow[order], link[order], carried[order]
    place = np.arange(len(flow)) - np.searchsorted(flow, flow)
    width = int(place.max(initial=0)) + 1
    links, weight = np.full((flows, width), free, dtype=np.int64), np.zeros((flows, width))
    links[flow, place], weight[flow, place] = link, carried
    return links, weight
