"""One integer program for several, of which one is chosen: each program's rows and bounds are multiplied by a
yes-or-no of its own, so that all of a program that is not chosen is 0 (the hull of the union, not a large
constant)."""

from typing import TYPE_CHECKING

import numpy as np

from shardwise.arrays import Floats, Ints
from shardwise.plan.search.problems._contract import NOTHING_FITS, IntegerProgram
from shardwise.plan.search.problems._rows import ProgramRows
from shardwise.plan.search.problems.stages._program import stage_program

if TYPE_CHECKING:
    from shardwise.plan.search.problems.joint._problem import JointProblem, Line

MOST_LINES = 12
"""in one program; the bounds of the others still count"""
MOST_COLUMNS = 60_000


def joint_program(problem: "JointProblem", best_s: float) -> IntegerProgram | str:
    """Of the lines whose bounds are below the best known, those with the least."""
    known = min(best_s, float(problem.price(problem.default[None]).seconds[0]))
    order = sorted(range(len(problem.lines)), key=lambda number: problem.lines[number].least_s)
    alive = [number for number in order if problem.lines[number].least_s <= known]
    made: list[tuple[int, IntegerProgram | None]] = []
    columns, left_out = 0, problem.rest_s
    for place, number in enumerate(alive):
        line = problem.lines[number]
        own = None if line.build is None else stage_program(line.stages, known / line.weight)
        if own == NOTHING_FITS:
            continue
        size = 0 if own is None or isinstance(own, str) else len(own.cost)
        if made and (len(made) == MOST_LINES or columns + size > MOST_COLUMNS):
            left_out = min(left_out, *(problem.lines[each].least_s for each in alive[place:]))
            break
        columns += size
        made.append((number, own if isinstance(own, IntegerProgram) else None))
    if not made:
        return NOTHING_FITS if left_out == np.inf else "no line that could be the best fits"
    return _either(problem, made, left_out)


def _either(problem: "JointProblem", made: list[tuple[int, IntegerProgram | None]], left_out: float) -> IntegerProgram:
    rows, starts = ProgramRows(), np.cumsum([0, *(0 if own is None else len(own.cost) for _, own in made)])
    wide, first = int(starts[-1]) + len(made), int(starts[-1])
    cost, whole = np.zeros(wide), np.ones(wide, dtype=np.int64)
    least, most = np.zeros(wide), np.ones(wide)
    rows.row([(np.arange(first, wide), np.ones(len(made)))], 1, 1)
    for place, (number, own) in enumerate(made):
        line, chosen, start = problem.lines[number], np.array([first + place]), int(starts[place])
        cost[first + place] = _fixed_s(line)
        if own is None:
            continue
        mine = slice(start, start + len(own.cost))
        cost[mine] = line.weight * line.stages.stretch * own.cost
        whole[mine], most[mine] = own.whole, own.most
        _scaled(rows, own, start, chosen)
        for column in np.flatnonzero(own.least > 0):
            rows.row([(np.array([start + column]), np.ones(1)), (chosen, -own.least[[column]])], 0, np.inf)

    def point(x: Floats) -> Ints:
        place = int(np.argmax(x[first:]))
        number, own = made[place]
        inner = np.zeros(0, dtype=np.int64) if own is None else own.point(x[starts[place] : starts[place + 1]])
        return problem.lifted(number, inner)

    return rows.program(cost, whole, least, most, point, lambda bound: min(bound, left_out))


def _fixed_s(line: "Line") -> float:
    """What a line costs before any stage."""
    return line.weight * (line.step_s if line.build is None else line.stages.overhead_s)


def _scaled(rows: ProgramRows, own: IntegerProgram, start: int, chosen: Ints) -> None:
    """low <= a x <= high as low y <= a x <= high y."""
    order = np.argsort(own.rows, kind="stable")
    edges = np.searchsorted(own.rows[order], np.arange(len(own.low) + 1))
    for row, (low, high) in enumerate(zip(own.low, own.high, strict=True)):
        mine = order[edges[row] : edges[row + 1]]
        entries = (start + own.columns[mine], own.values[mine])
        if low == high:
            rows.row([entries, (chosen, np.array([-low]))], 0, 0)
            continue
        if np.isfinite(low):
            rows.row([entries, (chosen, np.array([-low]))], 0, np.inf)
        if np.isfinite(high):
            rows.row([entries, (chosen, np.array([-high]))], -np.inf, 0)
