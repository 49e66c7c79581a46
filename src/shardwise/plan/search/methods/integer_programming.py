"""Integer programming: HiGHS, through scipy. Exact, and honest about the gap when it is stopped.

The problem writes itself as an integer program. Runs are in slices of time, each knowing what the last found, so that
Ctrl-C is heard. The next best answer is the best with all answers found so far forbidden. One evaluation is one node of
the tree, or one point priced.
"""

from dataclasses import replace
from importlib.util import find_spec
from typing import Any

import numpy as np

from shardwise.arrays import Ints
from shardwise.plan.search.methods._contract import Method, refusal
from shardwise.plan.search.methods._meter import Meter
from shardwise.plan.search.problems._contract import NOTHING_FITS, IntegerProgram, Problem

SLICES_S = (10.0, 30.0)
"""seconds HiGHS may take before what it has is looked at"""
GAP = 1e-9
SAME = 1e-4
"""a price this near to the bound counts as proven: the solver keeps to rows only within its own tolerance"""
OPTIMAL, INFEASIBLE = 0, 2
NEEDS_SCIPY = "it needs scipy; install shardwise[fit]"


def _look(meter: Meter, _seed: int) -> None:
    meter.price(meter.problem.default[None])
    found: list[Ints] = []
    while len(found) < meter.count and (point := _next(meter, found)) is not None:
        found.append(point)


def _next(meter: Meter, found: list[Ints]) -> Ints | None:
    """The best point whose answer is none of those found, if it is proven; sets the meter's proof either way."""
    meter.proven = False
    for limit_s in SLICES_S:
        program = meter.problem.program(meter.cutoff)
        if program == NOTHING_FITS:
            meter.proven = True
            return None
        if isinstance(program, str):
            raise refusal("ip", program)
        if not meter.left:
            return None
        result = _solved(_without(program, found), limit_s, meter.left)
        meter.evaluations += min(int(result.mip_node_count or 0), meter.left - 1)
        point = None if result.x is None else program.point(result.x)
        price = np.inf if point is None else float(meter.price(point[None])[0][0])
        if result.status == INFEASIBLE:
            meter.proven = True
            return None
        bound = 0.0 if result.mip_dual_bound is None else program.seconds(float(result.mip_dual_bound))
        if not found:
            meter.bounded(bound)
            price = min(price, meter.best)
        if result.status == OPTIMAL:
            meter.proven = price <= bound * (1.0 + SAME)
            return point if meter.proven else None
    return None


def _without(program: IntegerProgram, found: list[Ints]) -> IntegerProgram:
    """The program with these answers forbidden: not all of their variables may be 1 again."""
    if not found:
        return program
    if program.answer is None:
        raise refusal("ip", "it finds the best here, not the next best")
    taken = [program.answer(point) for point in found]
    rows = np.repeat(np.arange(len(taken)) + len(program.low), [len(columns) for columns in taken])
    return replace(
        program, rows=np.append(program.rows, rows), columns=np.concatenate([program.columns, *taken]),
        values=np.append(program.values, np.ones(len(rows))),
        low=np.append(program.low, np.full(len(taken), -np.inf)),
        high=np.append(program.high, [len(columns) - 1.0 for columns in taken]),
    )  # fmt: skip


def _solved(program: IntegerProgram, limit_s: float, nodes: int) -> Any:
    try:
        from scipy.optimize import Bounds, LinearConstraint, milp  # type: ignore[import-untyped]
        from scipy.sparse import csr_array  # type: ignore[import-untyped]
    except ImportError:
        raise refusal("ip", NEEDS_SCIPY) from None
    table = csr_array(
        (program.values, (program.rows, program.columns)), shape=(len(program.low), len(program.cost))
    )  # fmt: skip
    return milp(
        program.cost, integrality=program.whole, bounds=Bounds(program.least, program.most),
        constraints=LinearConstraint(table, program.low, program.high),
        options={"time_limit": limit_s, "node_limit": nodes, "mip_rel_gap": GAP},
    )  # fmt: skip


def _why_not(problem: Problem, _budget: int) -> str:
    if find_spec("scipy") is None:
        return NEEDS_SCIPY
    program = problem.program(float("inf"))
    return program if isinstance(program, str) and program != NOTHING_FITS else ""


METHOD = Method(
    name="ip",
    title="integer programming",
    summary="HiGHS on the problem as an integer program",
    exact=True,
    look=_look,
    why_not=_why_not,
)
