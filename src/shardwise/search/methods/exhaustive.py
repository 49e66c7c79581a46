"""Every point there is: the referee on small spaces."""

from shardwise.search.methods._contract import Method, points_text
from shardwise.search.methods._meter import Meter
from shardwise.search.problems._contract import Problem


def _look(meter: Meter, _seed: int) -> None:
    for block in meter.problem.every():
        if not meter.left:
            return
        meter.price(block[: meter.left])
    meter.proven = meter.evaluations == meter.problem.points


def _why_not(problem: Problem, budget: int) -> str:
    return "" if problem.points <= budget else f"{points_text(problem.points)} points, the budget is {budget:,}"


METHOD = Method(
    name="exhaustive",
    title="enumeration",
    summary="every point; for small spaces",
    exact=True,
    look=_look,
    why_not=_why_not,
)
