"""Dynamic programming: exact, where the problem falls apart.

A row of choices does as it stands (`_path.py`); a chain of stages once its slowest stage is bounded: shortest paths
(`_chain.py`), and where there are several such chains, one after another until no bound is below the best. Equal boxes
whose worst one counts do over sets of what is still to be packed (`_subsets.py`), as long as there are few sets.
"""

from shardwise.plan.search.methods._chain import look_along, look_at_each
from shardwise.plan.search.methods._contract import Method, refusal
from shardwise.plan.search.methods._meter import Meter
from shardwise.plan.search.methods._path import look_down
from shardwise.plan.search.methods._subsets import look_into
from shardwise.plan.search.problems._contract import ChoicePath, EitherOf, Problem, StageChain


def _look(meter: Meter, _seed: int) -> None:
    found = meter.problem.decomposition()
    if isinstance(found, str):
        raise refusal("dp", found)
    if isinstance(found, ChoicePath):
        look_down(meter, found)
        return
    if meter.count > 1:
        raise refusal("dp", "it finds the best here, not the next best")
    if isinstance(found, StageChain):
        look_along(meter, found)
    elif isinstance(found, EitherOf):
        look_at_each(meter, found)
    else:
        look_into(meter, found)


def _why_not(problem: Problem, _budget: int) -> str:
    found = problem.decomposition()
    return found if isinstance(found, str) else ""


METHOD = Method(
    name="dp", title="dynamic programming", summary="shortest paths along choices or stages, or over sets of items",
    exact=True, look=_look, why_not=_why_not,
)  # fmt: skip
