"""Every point there is: the referee on small spaces. Where a problem can bound what is left of a walk, points that
cannot be among the best are answered for by the bound, and larger spaces are within reach."""

from shardwise.plan.search.methods._contract import Method, points_text
from shardwise.plan.search.methods._meter import Meter
from shardwise.plan.search.problems._contract import Bounded, Problem, TooManyBranches


def _look(meter: Meter, _seed: int) -> None:
    problem = meter.problem
    if not isinstance(problem, Bounded):
        for block in problem.every():
            if not meter.left:
                return
            meter.price(block[: meter.left])
        meter.proven = meter.evaluations == problem.points
        return
    meter.bounded(problem.bound_s)
    try:
        for block in problem.every_below(lambda: meter.cutoff):
            cut = block[: meter.left]
            if len(cut):
                meter.price(cut)
            if len(cut) < len(block):
                return
    except TooManyBranches:
        return
    meter.proven = True


def _why_not(problem: Problem, budget: int) -> str:
    if isinstance(problem, Bounded) or problem.points <= budget:
        return ""
    return f"{points_text(problem.points)} points, the budget is {budget:,}"


METHOD = Method(
    name="exhaustive",
    title="enumeration",
    summary="every point, or all that a bound leaves; for small spaces",
    exact=True,
    look=_look,
    why_not=_why_not,
)
