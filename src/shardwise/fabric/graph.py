"""Any fabric, as a list of links: messages take the ways with the fewest network links, then the fewest in all.

A GPU sends and receives but passes nothing on for others. Where several ways are equally short, `ecmp` lets a hash pick
the next link at each switch, and `spray` splits a message over all of them in proportion to their capacities.
"""

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from shardwise.arrays import Floats, Ints
from shardwise.fabric.links import Links, Routes, mixed
from shardwise.fabric.wiring import Wiring

FAR = 1000
"""length of a network link; one inside a node has length 1"""
UNREACHED = 1 << 40
MOST_ENTRIES = 8_000_000
"""messages x links looked at together"""


@dataclass(frozen=True)
class Graph:
    """Vertices 0 to gpus - 1 are the GPUs, the others switches."""

    name: str
    names: tuple[str, ...]
    node: Ints
    """of each GPU"""
    source: Ints
    target: Ints
    links: Links = field(repr=False)
    wiring: Wiring

    @property
    def gpus(self) -> int:
        return len(self.node)

    @cached_property
    def rail(self) -> Ints:
        """The place of a GPU inside its node."""
        place = np.zeros(self.gpus, dtype=np.int64)
        for node in np.unique(self.node):
            mine = np.flatnonzero(self.node == node)
            place[mine] = np.arange(len(mine))
        return place

    @cached_property
    def unit(self) -> Ints:
        """The first switch a GPU hangs on."""
        found = np.full(self.gpus, len(self.names), dtype=np.int64)
        outward = (self.source < self.gpus) & (self.target >= self.gpus) & (self.links.level > 0)
        np.minimum.at(found, self.source[outward], self.target[outward])
        return found

    def reducing(self, gpus: Ints) -> tuple[Ints, Ints]:
        return self._adding[0][gpus], self._adding[1][gpus]

    @cached_property
    def _adding(self) -> tuple[Ints, Ints]:
        """Links of each GPU into and out of the first switch inside its node."""
        into, out = np.full(self.gpus, -1, dtype=np.int64), np.full(self.gpus, -1, dtype=np.int64)
        inside = np.flatnonzero(self.links.level == 0)[::-1]
        for found, gpu, other in ((into, self.source, self.target), (out, self.target, self.source)):
            mine = inside[(gpu[inside] < self.gpus) & (other[inside] >= self.gpus)]
            found[gpu[mine]] = mine
        return into, out

    def adding(self, sums: Ints) -> Ints:
        """The switch that is nearest to all parts of a sum is the root; ways to it are joined where they meet."""
        found: list[int] = []
        for row in sums:
            root, apart = self._root(row)
            taken: set[int] = set()
            for gpu in row.tolist():
                at = gpu
                while at != root:
                    out = self._out_of[at]
                    near = out[apart[self.target[out]] + self._length[out] == apart[at]]
                    taken.add(int(near[0]))
                    at = int(self.target[near[0]])
            found += [*taken, *(self._back(link) for link in taken)]
        return np.array(found, dtype=np.int64)

    def _root(self, gpus: Ints) -> tuple[int, Ints]:
        best: tuple[int, int, Ints] | None = None
        for switch in range(self.gpus, len(self.names)):
            apart = self._distances(switch)
            total = int(apart[gpus].sum())
            if best is None or total < best[0]:
                best = (total, switch, apart)
        if best is None or best[0] >= UNREACHED:
            raise ValueError(f"{self.name}: no switch joins all parts of a sum; name another algorithm")
        return best[1], best[2]

    def _back(self, link: int) -> int:
        """The link the other way."""
        found = np.flatnonzero((self.source == self.target[link]) & (self.target == self.source[link]))
        if not len(found):
            raise ValueError(
                f"{self.name}: {self.links.name_of(link)} has no return link; add one, or name another algorithm"
            )
        return int(found[0])

    def routes(self, source: Ints, target: Ints) -> Routes:
        ends, which = np.unique(target, return_inverse=True)
        apart = np.array([self._distances(int(end)) for end in ends], dtype=np.int64).reshape(-1, len(self.names))
        cut_off = np.flatnonzero(apart[which, source] >= UNREACHED)
        if len(cut_off):
            pair = (int(source[cut_off[0]]), int(target[cut_off[0]]))
            raise ValueError(f"{self.name}: no path from {self.names[pair[0]]} to {self.names[pair[1]]}; add a link")
        if self.wiring.routing == "spray":
            return self._sprayed(source, ends, which, apart)
        count = self.wiring.connections
        message = np.repeat(np.arange(len(source)), count)
        number = np.tile(np.arange(count), len(source))
        links = self._hashed(source[message], target[message], which[message], number, apart)
        return Routes(links, message, np.full(len(message), 1.0 / count))

    @cached_property
    def _length(self) -> Ints:
        return np.where(self.links.level == 0, 1, FAR)

    @cached_property
    def _out_of(self) -> list[Ints]:
        order = np.argsort(self.source, kind="stable")
        return np.split(order, np.searchsorted(self.source[order], np.arange(1, len(self.names))))

    def _distances(self, end: int) -> Ints:
        """From every vertex to one GPU."""
        usable = (self.target >= self.gpus) | (self.target == end)
        source, target, length = self.source[usable], self.target[usable], self._length[usable]
        found = np.full(len(self.names), UNREACHED, dtype=np.int64)
        found[end] = 0
        while True:
            nearer = found.copy()
            np.minimum.at(nearer, source, found[target] + length)
            if (nearer == found).all():
                return np.minimum(found, UNREACHED)
            found = nearer

    def _hashed(self, source: Ints, target: Ints, which: Ints, number: Ints, apart: Ints) -> Ints:
        free, columns, at = len(self.links), [], source.copy()
        while (moving := np.flatnonzero(at != target)).size:
            column = np.full(len(at), free, dtype=np.int64)
            for vertex in np.unique(at[moving]):
                mine = moving[at[moving] == vertex]
                out = self._out_of[int(vertex)]
                ahead = apart[which[mine]][:, self.target[out]] + self._length[out]
                nearer = ahead == apart[which[mine], vertex][:, None]
                nearer &= (self.target[out] >= self.gpus) | (self.target[out] == target[mine][:, None])
                pick = self._pick(int(vertex), source[mine], target[mine], number[mine])
                wanted = (pick % nearer.sum(axis=1).astype(np.uint64)).astype(np.int64)
                column[mine] = out[np.argmax(np.cumsum(nearer, axis=1) > wanted[:, None], axis=1)]
            columns.append(column)
            at = np.where(column < free, self.target[np.minimum(column, free - 1)], at)
        return np.column_stack(columns) if columns else np.full((len(source), 1), free, dtype=np.int64)

    def _pick(self, vertex: int, source: Ints, target: Ints, number: Ints) -> NDArray[np.uint64]:
        """Of each connection: what a switch's choice follows from."""
        seed, hashes = self.wiring.seed, self.wiring.hashes
        if hashes == "turn":
            return mixed(seed, vertex, source, target) + number.astype(np.uint64)
        return mixed(seed, vertex if hashes == "distinct" else 0, source, target, number)

    def _sprayed(self, source: Ints, ends: Ints, which: Ints, apart: Ints) -> Routes:
        tables = []
        most = max(MOST_ENTRIES // len(self.links), 1)
        for place in range(len(ends)):
            all_mine = np.flatnonzero(which == place)
            parts = np.array_split(all_mine, -(-len(all_mine) // most))
            tables += [(mine, *self._split(source[mine], apart[place])) for mine in parts]
        width = max((links.shape[1] for _, links, _ in tables), default=1)
        all_links = np.full((len(source), width), len(self.links), dtype=np.int64)
        weight = np.zeros((len(source), width))
        for mine, links, share in tables:
            all_links[mine, : links.shape[1]], weight[mine, : links.shape[1]] = links, share
        return Routes(all_links, np.arange(len(source)), np.ones(len(source)), weight)

    def _split(self, source: Ints, apart: Ints) -> tuple[Ints, Floats]:
        """(links, part of the message on each) of messages to one end."""
        shortens = (apart[self.source] < UNREACHED) & (apart[self.target] + self._length == apart[self.source])
        links = np.flatnonzero(shortens & ((self.target >= self.gpus) | (apart[self.target] == 0)))
        start, end, capacity = self.source[links], self.target[links], self.links.capacity[links]
        part = capacity / np.bincount(start, weights=capacity, minlength=len(self.names))[start]
        there = np.zeros((len(self.names), len(source)))
        there[source, np.arange(len(source))] = 1.0
        on_link = np.zeros((len(links), len(source)))
        for far in np.unique(apart[start])[::-1]:
            now = np.flatnonzero(apart[start] == far)
            on_link[now] = there[start[now]] * part[now, None]
            np.add.at(there, end[now], on_link[now])
        width = max(int((on_link > 0).sum(axis=0).max(initial=0)), 1)
        order = np.argsort(-on_link.T, axis=1, kind="stable")[:, :width]
        share = np.take_along_axis(on_link.T, order, axis=1)
        return np.where(share > 0, links[order], len(self.links)), share
