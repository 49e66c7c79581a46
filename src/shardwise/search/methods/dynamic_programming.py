"""Dynamic programming: exact, where the problem falls apart.

A chain of stages does once its slowest stage is bounded: shortest paths (`_chain.py`). Equal boxes whose worst one
counts do over sets of what is still to be packed (`_subsets.py`), as long as there are few sets.
"""

from shardwise.search.methods._chain import look_along
from shardwise.search.methods._contract import Method, refusal
from shardwise.search.methods._meter import Meter
from shardwise.search.methods._subsets import look_into
from shardwise.search.problems import Chain, Problem


def _look(meter: Meter, _seed: int) -> None:
    found = meter.problem.decomposition()
    if isinstance(found, str):
        raise refusal("dp", found)
    if isinstance(found, Chain):
        look_along(meter, found)
    else:
        look_into(meter, found)


def _why_not(problem: Problem) -> str:
    found = problem.decomposition()
    return found if isinstance(found, str) else ""


METHOD = Method(
    name="dp", summary="shortest paths along stages, or over sets of what is packed", exact=True, look=_look,
    why_not=_why_not,
)  # fmt: skip
