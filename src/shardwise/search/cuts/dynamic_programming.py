"""Dynamic programming on a chain: what comes after an operation depends on its choice alone, so the best way to each
choice is enough. With a limit on memory every way that is not beaten in both time and memory is kept; for the n best,
those beaten by fewer than n others.
"""

from dataclasses import dataclass

import numpy as np

from shardwise.search.cuts._price import SLACK, Assignment, Problem


@dataclass(frozen=True)
class _Way:
    seconds: float
    held: float
    assignment: Assignment
    shown: Assignment


def best(problem: Problem, count: int = 1, most_bytes: float = np.inf) -> list[Assignment]:
    """The `count` best assignments that differ in what is shown, best first."""
    graph = problem.graph
    if not graph.is_chain:
        raise ValueError(f"method: {graph.name} is no chain, which dp needs; write --method ip")
    bounded = bool(np.isfinite(most_bytes))
    ways: list[list[_Way]] = []
    for place, op in enumerate(graph.ops):
        following = []
        for index in range(len(op.choices)):
            own, held = problem.own[place][index], problem.bytes[place][index]
            seen = (index,) if op.shown else ()
            if not op.reads:
                following.append([_Way(own, held, (index,), seen)])
                continue
            reached = [
                _Way(way.seconds + between + own, way.held + held, (*way.assignment, index), (*way.shown, *seen))
                for produced, known in enumerate(ways)
                for between in [problem.between(op.reads[0], produced, [index])]
                for way in known
                if way.held + held <= most_bytes * SLACK
            ]
            following.append(_kept(reached, count, bounded))
        ways = following
    return [way.assignment for way in _kept([way for known in ways for way in known], count, bounded)[:count]]


def _kept(ways: list[_Way], count: int, bounded: bool) -> list[_Way]:
    """Fastest first, without those that at least `count` others with other cuts beat in time (and memory)."""
    kept: list[_Way] = []
    for way in sorted(ways, key=lambda w: (w.seconds, w.held)):
        if not np.isfinite(way.seconds):
            break
        beating = {w.shown for w in kept if not bounded or w.held <= way.held}
        if way.shown not in beating and len(beating) < count:
            kept.append(way)
    return kept
