"""The best cuts of a graph, the named ones and the next best, each priced where the group lies close and where far."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from shardwise.plan.search.methods import BUDGET, Method, method_for, method_of, methods
from shardwise.plan.search.problems.cuts import ENDS, PROBLEM, CutGraph, CutPrice, CutProblem, NamedCut, named_cuts
from shardwise.registry import closest
from shardwise.step.estimate.machine import Machine

MOST_POINTS = 4_000_000
"""assignments that exact methods may look at"""
BEST = ("optimum ", "best ")
"""how the best point of a place is named: proven, or not"""
SAME = 1e-9
FEW = 20_000
"""assignments that are enumerated faster than a program is set up for them"""


@dataclass
class CutPoint:
    names: list[str]
    ends: str
    cuts: dict[str, str]
    """choice of each matrix and attention"""
    at: dict[str, CutPrice]
    """by place; what is not shown is chosen for each place by itself"""


@dataclass
class CutStudy:
    graph: CutGraph
    method: Method
    points: list[CutPoint]
    """best first, then named ones, then the next best"""
    problems: dict[tuple[str, str], CutProblem]
    """by ends and place"""
    notes: list[str] = field(default_factory=list)
    proven: bool = True
    """the best are the best there are, and the next best the next"""

    @property
    def assignments(self) -> int:
        """Points of the space, all ends together."""
        return sum(graph.points for graph in {end: p.graph for (end, _), p in self.problems.items()}.values())

    @property
    def found(self) -> bool:
        return any(name.startswith(BEST) for point in self.points for name in point.names)


def study(
    graph: CutGraph,
    places: Mapping[str, Machine],
    *,
    ends: tuple[str, ...] = ("replicated",),
    top: int = 3,
    most_bytes: float = np.inf,
    accumulate: int = 1,
    method: str | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> CutStudy:
    """places: name -> machine; the first decides which cuts are the next best. progress: told (done, of all)."""
    for end in ends:
        if end not in ENDS:
            raise ValueError(f"ends: {end!r} is unknown; {closest(end, ['any', *ENDS])}")
    graphs = {end: graph.with_ends(end) for end in ends}
    problems = {
        (end, place): CutProblem(graphs[end], machine, accumulate, most_bytes)
        for end in ends
        for place, machine in places.items()
    }
    chosen = method_for(next(iter(problems.values())), method, PROBLEM.methods, _budget(method))
    found = CutStudy(graph, chosen, [], problems, list(graph.notes))
    look = _Look(found, places, progress)
    ranked = {place: look.ranked(place, 1 if n else top + 1) for n, place in enumerate(places)}
    best = BEST[0 if found.proven else 1]
    for place, points in ranked.items():
        if points:
            look.add(f"{best}{place}", *points[0])
    for name in named_cuts(graph):
        look.add_named(name)
    for number, following in enumerate(ranked[look.places[0]][1:], 1):
        look.add(f"next {number}", *following)
    return found


def _budget(method: str | None) -> int:
    known = methods().get(method or "")
    return MOST_POINTS if known is None or known.exact else BUDGET


class _Look:
    def __init__(self, study_: CutStudy, places: Iterable[str], progress: Callable[[int, int], None] | None) -> None:
        self.study, self.places = study_, tuple(places)
        self.ends = list(dict.fromkeys(end for end, _ in study_.problems))
        self.progress, self.solved = progress, 0

    def ranked(self, place: str, count: int) -> list[tuple[str, dict[str, str]]]:
        """(ends, cuts) of the best, fastest first."""
        found = []
        for end in self.ends:
            problem = self.study.problems[end, place]
            if self.progress is not None:
                self.progress(self.solved, len(self.study.problems))
            self.solved += 1
            best = self._solved(self.study.method, problem, count)
            found += [(problem.detail(each).seconds, end, problem.names(each)) for each in best]
        found.sort(key=lambda item: item[0])
        return [(end, cuts) for _, end, cuts in found[:count]]

    def _solved(self, method: Method, problem: CutProblem, count: int) -> list[tuple[int, ...]]:
        budget = _budget(method.name)
        solution = method.solve(problem, budget_evaluations=budget, count=count)
        if not solution.finished:
            raise KeyboardInterrupt  # of several searches; one that has not ended spoils the order of all
        self.study.proven &= solution.proven
        return [tuple(point.tolist()) for point in solution.ranked]

    def add(self, name: str, end: str, cuts: dict[str, str]) -> None:
        """Adds a point, or a name to the one that is the same cut at the same price."""
        at = {place: priced for place in self.places if (priced := self._priced(end, place, cuts)) is not None}
        if not at:
            self.study.notes.append(f"{name}: not possible here, some size does not divide by {self.study.graph.ranks}")
            return
        problem = self.study.problems[end, self.places[0]]
        shown = {op.name: cuts[op.name] for op in problem.graph.ops if op.shown}
        for point in self.study.points:
            if (point.ends, point.cuts) == (end, shown) and _same_price(point.at, at):
                point.names.append(name)
                return
        self.study.points.append(CutPoint([name], end, shown, at))

    def add_named(self, named: NamedCut) -> None:
        if named.ends is not None:
            if named.ends in self.ends:
                self.add(named.name, named.ends, named.cuts)
            return
        place = self.places[0]
        priced = {end: self._priced(end, place, named.cuts) for end in self.ends}
        seconds = {end: p.seconds for end, p in priced.items() if p is not None}
        self.add(named.name, min(seconds, key=lambda end: seconds[end]) if seconds else self.ends[0], named.cuts)

    def _priced(self, end: str, place: str, cuts: dict[str, str]) -> CutPrice | None:
        """The best that can be made of a cut: what it leaves open is chosen."""
        problem = self.study.problems[end, place].fixed(cuts)
        if problem is None:
            return None
        found = self._solved(method_of("exhaustive") if problem.points <= FEW else self.study.method, problem, 1)
        return problem.detail(found[0]) if found else None


def _same_price(one: dict[str, CutPrice], other: dict[str, CutPrice]) -> bool:
    return one.keys() == other.keys() and all(
        abs(one[place].seconds - other[place].seconds) <= SAME * one[place].seconds for place in one
    )
