"""Integer programming: HiGHS, through scipy. Exact, and honest about the gap when it is stopped.

The problem writes itself as an integer program. Runs are in slices of time, each knowing what the last found, so that
Ctrl-C is heard. One evaluation is one node of the tree, or one point priced.
"""

from typing import Any

from shardwise.search.methods._contract import Method, refusal
from shardwise.search.methods._meter import Meter
from shardwise.search.problems import NOTHING_FITS, Problem, Program

SLICES_S = (2.0, 8.0, 30.0)
"""seconds HiGHS may take before what it has is looked at"""
GAP = 1e-9
SAME = 1e-4
"""a price this near to the bound counts as proven: the solver keeps to rows only within its own tolerance"""
OPTIMAL, INFEASIBLE = 0, 2


def _look(meter: Meter, _seed: int) -> None:
    meter.price(meter.problem.default[None])
    for limit_s in SLICES_S:
        program = meter.problem.program(meter.best)
        if program == NOTHING_FITS:
            meter.proven = True
            return
        if isinstance(program, str):
            raise refusal("ip", program)
        if not meter.left:
            return
        result = _solved(program, limit_s, meter.left)
        meter.evaluations += min(int(result.mip_node_count or 0), meter.left - 1)
        if result.x is not None:
            meter.price(program.point(result.x)[None])
        if result.status == INFEASIBLE:
            meter.proven = True
            return
        if result.mip_dual_bound is not None:
            meter.bounded(program.seconds(float(result.mip_dual_bound)))
        if result.status == OPTIMAL:
            meter.proven = meter.bound is not None and meter.best <= meter.bound * (1.0 + SAME)
            return


def _solved(program: Program, limit_s: float, nodes: int) -> Any:
    try:
        from scipy.optimize import Bounds, LinearConstraint, milp  # type: ignore[import-untyped]
        from scipy.sparse import csr_array  # type: ignore[import-untyped]
    except ImportError:
        raise ValueError("method: ip needs scipy; install shardwise[fit], or write --method dp") from None
    table = csr_array(
        (program.values, (program.rows, program.columns)), shape=(len(program.low), len(program.cost))
    )  # fmt: skip
    return milp(
        program.cost, integrality=program.whole, bounds=Bounds(program.least, program.most),
        constraints=LinearConstraint(table, program.low, program.high),
        options={"time_limit": limit_s, "node_limit": nodes, "mip_rel_gap": GAP},
    )  # fmt: skip


def _why_not(problem: Problem) -> str:
    program = problem.program(float("inf"))
    return program if isinstance(program, str) and program != NOTHING_FITS else ""


METHOD = Method(
    name="ip", summary="HiGHS on the problem as an integer program", exact=True, look=_look, why_not=_why_not
)
