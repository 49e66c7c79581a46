"""The best cuts of a graph, the named ones and the next best, each priced where the group lies close and where far."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec

import numpy as np

from shardwise.estimate.layers import Machine
from shardwise.registry import closest
from shardwise.search.cuts import dynamic_programming, exhaustive, integer_programming
from shardwise.search.cuts._graph import ENDS, Graph
from shardwise.search.cuts._named import Named, named_cuts
from shardwise.search.cuts._price import Assignment, Priced, Problem

METHODS: dict[str, Callable[[Problem, int, float], list[Assignment]]] = {
    "dp": dynamic_programming.best,
    "ip": integer_programming.best,
    "exhaustive": exhaustive.best,
}
SAME = 1e-9
FEW = 20_000
"""assignments that are enumerated faster than a program is set up for them"""


@dataclass
class Point:
    names: list[str]
    ends: str
    cuts: dict[str, str]
    """choice of each matrix and attention"""
    at: dict[str, Priced]
    """by place; what is not shown is chosen for each place by itself"""


@dataclass(frozen=True)
class Study:
    graph: Graph
    method: str
    points: list[Point]
    """optimum first, then named ones, then the next best"""
    problems: dict[tuple[str, str], Problem]
    """by ends and place"""
    notes: list[str] = field(default_factory=list)

    @property
    def assignments(self) -> int:
        """Points of the space, all ends together."""
        return sum(graph.points for graph in {end: p.graph for (end, _), p in self.problems.items()}.values())

    @property
    def found(self) -> bool:
        return any("optimum" in name for point in self.points for name in point.names)


def method_for(graph: Graph, asked: str) -> str:
    if asked != "auto":
        if asked not in METHODS:
            raise ValueError(f"method: {asked!r} is unknown; {closest(asked, ['auto', *METHODS])}")
        return asked
    if graph.is_chain:
        return "dp"
    return "exhaustive" if find_spec("scipy") is None and graph.points <= exhaustive.MOST_POINTS else "ip"


def study(
    graph: Graph,
    places: Mapping[str, Machine],
    *,
    ends: tuple[str, ...] = ("replicated",),
    top: int = 3,
    most_bytes: float = np.inf,
    accumulate: int = 1,
    method: str = "auto",
    progress: Callable[[int, int], None] | None = None,
) -> Study:
    """places: name -> machine; the first decides which cuts are the next best. progress: told (done, of all)."""
    for end in ends:
        if end not in ENDS:
            raise ValueError(f"ends: {end!r} is unknown; {closest(end, ['any', *ENDS])}")
    way = method_for(graph, method)
    graphs = {end: graph.with_ends(end) for end in ends}
    problems = {
        (end, place): Problem(graphs[end], machine, accumulate) for end in ends for place, machine in places.items()
    }
    found = Study(graph, way, [], problems, list(graph.notes))
    look = _Look(found, places, progress)
    ranked = {place: look.ranked(place, 1 if n else top + 1, most_bytes) for n, place in enumerate(places)}
    for place, best in ranked.items():
        if best:
            look.add(f"optimum {place}", *best[0])
    for name in named_cuts(graph):
        look.add_named(name)
    for number, following in enumerate(ranked[look.places[0]][1:], 1):
        look.add(f"next {number}", *following)
    return found


class _Look:
    def __init__(self, study_: Study, places: Iterable[str], progress: Callable[[int, int], None] | None) -> None:
        self.study, self.best, self.places = study_, METHODS[study_.method], tuple(places)
        self.ends = list(dict.fromkeys(end for end, _ in study_.problems))
        self.progress, self.solved = progress, 0

    def ranked(self, place: str, count: int, most_bytes: float) -> list[tuple[str, dict[str, str]]]:
        """(ends, cuts) of the best, fastest first."""
        found = []
        for end in self.ends:
            problem = self.study.problems[end, place]
            if self.progress is not None:
                self.progress(self.solved, len(self.study.problems))
            self.solved += 1
            best = self.best(problem, count, most_bytes)
            found += [(problem.price(each).seconds, end, _shown(problem, each)) for each in best]
        found.sort(key=lambda item: item[0])
        return [(end, cuts) for _, end, cuts in found[:count]]

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
        self.study.points.append(Point([name], end, shown, at))

    def add_named(self, named: Named) -> None:
        if named.ends is not None:
            if named.ends in self.ends:
                self.add(named.name, named.ends, named.cuts)
            return
        place = self.places[0]
        priced = {end: self._priced(end, place, named.cuts) for end in self.ends}
        seconds = {end: p.seconds for end, p in priced.items() if p is not None}
        self.add(named.name, min(seconds, key=lambda end: seconds[end]) if seconds else self.ends[0], named.cuts)

    def _priced(self, end: str, place: str, cuts: dict[str, str]) -> Priced | None:
        """The best that can be made of a cut: what it leaves open is chosen."""
        problem = self.study.problems[end, place].fixed(cuts)
        if problem is None:
            return None
        few = problem.graph.points <= FEW
        found = exhaustive.best(problem) if few else self.best(problem, 1, np.inf)
        return problem.price(found[0]) if found else None


def _shown(problem: Problem, assignment: Assignment) -> dict[str, str]:
    names = problem.names(assignment)
    return {op.name: names[op.name] for op in problem.graph.ops if op.shown}


def _same_price(one: dict[str, Priced], other: dict[str, Priced]) -> bool:
    return one.keys() == other.keys() and all(
        abs(one[place].seconds - other[place].seconds) <= SAME * one[place].seconds for place in one
    )
