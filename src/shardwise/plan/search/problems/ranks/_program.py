"""Rank placement as an integer program: what two nodes pay each other, made linear by a variable per edge and block.

x says where each node lies. An edge that leaves a block sets that block's y; the load of the worst block and the wait
of the slowest group are above all of theirs, and each collective takes the cheapest of its protocols. Waits of an
all-to-all are counted from below (as if it crossed one level only once), so the bound holds and the price decides.
"""

from dataclasses import dataclass

import numpy as np

from shardwise.arrays import Floats, Ints
from shardwise.cost.network import Protocol
from shardwise.plan.search.problems._contract import IntegerProgram
from shardwise.plan.search.problems._rows import ProgramRows
from shardwise.plan.search.problems.ranks._problem import GroupTraffic, RankProblem
from shardwise.plugins.collectives._exchange import exchange_steps

MOST_VARIABLES = 60_000
MICRO = 1e6
"""costs are in microseconds, far above the solver's tolerance on a row"""


@dataclass(frozen=True)
class _Leaving:
    """The y of one set of edges: level above the leaf x edges x blocks; the first column of each level."""

    starts: tuple[int, ...]
    counts: tuple[int, ...]
    """blocks of each level"""

    def of(self, level: int, edge: int) -> Ints:
        return self.starts[level] + edge * self.counts[level] + np.arange(self.counts[level])


def rank_program(problem: RankProblem) -> IntegerProgram | str:
    if any(np.diff(way.step_s[1:]).min(initial=0.0) < 0 for item in problem.traffic for way in item.protocols):
        return "a message across a higher level is faster than across a lower one, which the program cannot say"
    model = _RankRows(problem)
    if model.width > MOST_VARIABLES:
        return f"it would have {model.width:,} variables; {MOST_VARIABLES:,} is the most"
    model.each_node_somewhere()
    for item, leaving in zip(problem.traffic, model.leaving, strict=True):
        model.leaves_blocks(item, leaving)
        model.costs(item, leaving)
    cost = np.zeros(model.width)
    cost[model.totals] = [item.count / MICRO for item in problem.traffic]
    whole, most = np.zeros(model.width, dtype=np.int64), np.ones(model.width)
    whole[: model.placed], whole[model.first_choice :] = 1, 1
    most[model.first_total : model.first_choice] = np.inf
    least = np.zeros(model.width)

    def point(x: Floats) -> Ints:
        taken = np.argmax(x[: model.placed].reshape(problem.nodes, -1), axis=1)
        free = np.array(problem.room) - np.bincount(taken, minlength=len(problem.room))
        return np.concatenate([taken, np.repeat(np.arange(len(problem.room)), free)])

    return model.program(cost, whole, least, most, point, lambda bound: bound)


class _RankRows(ProgramRows):
    """Columns: x, y of each set of edges, then per collective its total, and per protocol its load and its wait; then
    which protocol it takes."""

    def __init__(self, problem: RankProblem) -> None:
        super().__init__()
        self.problem = problem
        self.placed = problem.nodes * len(problem.room)
        self.width = self.placed
        self.known: dict[bytes, _Leaving] = {}
        self.written: set[int] = set()
        self.leaving = [self._leaving(item) for item in problem.traffic]
        self.first_total = self.width
        ways = [len(item.protocols) for item in problem.traffic]
        self.totals = self.width + np.arange(len(ways))
        self.width += len(ways)
        self.loads = [self._take(2 * count) for count in ways]
        self.first_choice = self.width
        self.choices = [self._take(count) for count in ways]

    def _take(self, count: int) -> Ints:
        self.width += count
        return np.arange(self.width - count, self.width)

    def _leaving(self, item: GroupTraffic) -> _Leaving:
        key = item.edges.tobytes()
        if key not in self.known:
            counts = tuple(int(row.max()) + 1 for row in self.problem.blocks)
            starts = tuple(int(self._take(item.edges.shape[1] * count)[0]) for count in counts)
            self.known[key] = _Leaving(starts, counts)
        return self.known[key]

    def at(self, node: int) -> Ints:
        return node * len(self.problem.room) + np.arange(len(self.problem.room))

    def each_node_somewhere(self) -> None:
        boxes = len(self.problem.room)
        for node in range(self.problem.nodes):
            self.row([(self.at(node), np.ones(boxes))], 1, 1)
        for box, room in enumerate(self.problem.room):
            self.row([(np.arange(self.problem.nodes) * boxes + box, np.ones(self.problem.nodes))], 0, room)

    def leaves_blocks(self, item: GroupTraffic, leaving: _Leaving) -> None:
        """y >= x of the source in the block - x of the target in it; once for each set of edges."""
        if leaving.starts[0] in self.written:
            return
        self.written.add(leaving.starts[0])
        for level, row in enumerate(self.problem.blocks):
            for edge, (source, target) in enumerate(item.edges.T):
                for block, column in enumerate(leaving.of(level, edge)):
                    inside = np.flatnonzero(row == block)
                    here, there = self.at(source)[inside], self.at(target)[inside]
                    ones = np.ones(len(inside))
                    self.row([(np.array([column]), np.ones(1)), (here, -ones), (there, ones)], 0, np.inf)

    def costs(self, item: GroupTraffic, leaving: _Leaving) -> None:
        number = self.problem.traffic.index(item)
        choices = self.choices[number]
        self.row([(choices, np.ones(len(choices)))], 1, 1)
        for place, way in enumerate(item.protocols):
            load, wait = self.loads[number][2 * place : 2 * place + 2]
            self._loads(item, leaving, np.array(way.byte_s) * MICRO, load)
            self._waits(item, leaving, np.array(way.step_s) * MICRO, wait)
            start = (way.start_s + item.inside_steps * way.within_s + item.copy_s) * MICRO
            # a protocol not taken must not hold the total up
            most = start + MICRO * self._worst(item, way)
            parts = np.array([self.totals[number], load, wait, choices[place]])
            self.row([(parts, np.array([1.0, -1.0, -1.0, -most]))], start - most, np.inf)

    def _worst(self, item: GroupTraffic, way: Protocol) -> float:
        """Seconds of a call whose every edge leaves every block, on the slowest cards."""
        out = np.bincount(item.edges[0], minlength=self.problem.nodes) * item.weight * item.crowding
        shares = [item.inside_volume, float(out.max() / self.problem.node_gpus / self.problem.speed.min())]
        shares += [item.edges.shape[1] * item.weight / float(gpus.min()) for gpus in self.problem.uplink_gpus]
        slowest = max(share * byte for share, byte in zip(shares, way.byte_s, strict=True))
        hops = float(item.groups.shape[1]) * max(item.node_members, 1.0)
        return item.bytes * slowest + max(way.step_s) * item.step_factor * hops

    def _loads(self, item: GroupTraffic, leaving: _Leaving, byte_s: Floats, load: int) -> None:
        problem = self.problem
        self.row([(np.array([load]), np.ones(1))], item.bytes * item.inside_volume * byte_s[0], np.inf)
        out = np.bincount(item.edges[0], minlength=problem.nodes) * item.weight * item.crowding / problem.node_gpus
        for node in range(problem.nodes):
            paid = -item.bytes * byte_s[1] * out[node] / problem.speed
            self.row([(np.array([load]), np.ones(1)), (self.at(node), paid)], 0, np.inf)
        edges = np.arange(item.edges.shape[1])
        for level, gpus in enumerate(problem.uplink_gpus):
            for block, own in enumerate(gpus):
                columns = leaving.starts[level] + edges * leaving.counts[level] + block
                paid = np.full(len(edges), -item.bytes * byte_s[level + 2] * item.weight / own)
                self.row([(np.array([load]), np.ones(1)), (columns, paid)], 0, np.inf)

    def _waits(self, item: GroupTraffic, leaving: _Leaving, step_s: Floats, wait: int) -> None:
        """A hop costs a step of the lowest level, and more for each level it crosses besides."""
        more = np.diff(step_s[1:])
        groups, length = item.groups.shape
        for group in range(groups):
            for hops, factor, fixed in self._chains(item, group, length, float(step_s[1])):
                entries = [(np.array([wait]), np.ones(1))]
                for level, extra in enumerate(more):
                    columns = np.concatenate([leaving.of(level, hop) for hop in hops])
                    entries.append((columns, np.full(len(columns), -factor * extra)))
                self.row(entries, factor * len(hops) * float(step_s[1]) + fixed, np.inf)

    def _chains(self, item: GroupTraffic, group: int, length: int, step: float) -> list[tuple[list[int], float, float]]:
        """(edges whose waits add up, factor, what comes on top), for everything of a group that may be the slowest."""
        if item.pattern == "pairs":
            each = length - 1
            firsts = [group * length * each + member * each for member in range(length)]
            one, two = exchange_steps(np.array([1.0, 2.0]))
            share = item.node_members * float(two - one)
            return [(list(range(first, first + each)), share, float(2 * one - two) * step) for first in firsts]
        hops = list(range(group * (length - 1), (group + 1) * (length - 1)))
        return (
            [(hops, item.step_factor, 0.0)] if item.pattern == "ring" else [([h], item.step_factor, 0.0) for h in hops]
        )
