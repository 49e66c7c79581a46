"""Where the nodes of a policy lie, and what that saves of its step: rank placement inside the joint search.

The step's own estimate says how long each kind of communication is exposed with ranks in order; a placement shortens
that in proportion to what it does to the kind's time on the network. What a placement makes longer counts in full.
"""

from dataclasses import dataclass

import numpy as np

from shardwise.case import Case
from shardwise.estimate.closed_form import estimate
from shardwise.estimate.synced import SyncChoice
from shardwise.search.methods import method_of
from shardwise.search.problems.ranks import RankProblem, rank_problem
from shardwise.spec.cluster import Cluster
from shardwise.spec.policy import Policies, Policy

BUDGET = 3_000
"""placements tried for one policy"""
PARTS = {"tp": ("tp_comm",), "cp": ("cp_comm",), "ep": ("ep_comm",), "pp": ("pp_comm",)}
REPLICAS = ("grad_comm", "param_comm")


@dataclass(frozen=True)
class Placement:
    nodes: tuple[str, ...]
    """the block of the fabric that each node of the policy lies in"""
    before_s: float
    """the network's seconds of a step with ranks in order, before any overlap"""
    after_s: float
    saved_s: float
    """of the step"""
    exposed_s: float
    """of the step: no placement saves more"""


def placement_matters(cluster: Cluster) -> bool:
    """Whether some uplinks carry less than what hangs below them: else every place is about as good."""
    return len(cluster.levels) > 2 and any(level.oversubscription > 1 for level in cluster.levels[2:])


def placement_of(case: Case, policy: Policy, sync: SyncChoice | None, seed: int = 0) -> Placement | None:
    """None where nothing is better than ranks in order, or the policy's groups cannot be placed."""
    try:
        problem = rank_problem(case, policy)
    except ValueError:
        return None
    found = method_of("rl").solve(problem, budget_evaluations=BUDGET, seed=seed)
    times = estimate(case, Policies.of([policy]), sync=sync).times
    parts = {name: float(np.asarray(seconds)[0]) for name, seconds in times.parts.items()}
    stretch = float(times.step_s[0]) / max(float(times.step_s[0]) - parts["other"], 1e-12)
    exposed = stretch * sum(parts[name] for names in (*PARTS.values(), REPLICAS) for name in names)
    saved = 0.0 if found.point is None else stretch * _saved(problem, found.point, parts)
    if found.point is None or saved <= 0:
        return Placement((), *_both(problem, problem.default), 0.0, exposed)
    names = tuple(problem.box_names[box] for box in found.point[: problem.nodes])
    return Placement(names, *_both(problem, found.point), saved, exposed)


def _both(problem: RankProblem, point: np.ndarray) -> tuple[float, float]:
    before, after = (float(problem.price(each[None]).seconds[0]) for each in (problem.default, point))
    return before, after


def _saved(problem: RankProblem, point: np.ndarray, parts: dict[str, float]) -> float:
    before, after = problem.parts_s(problem.default), problem.parts_s(point)
    total = 0.0
    for names in (*PARTS.values(), REPLICAS):
        mine = [name for name in before if PARTS.get(name.split()[0], REPLICAS) == names]
        was, now = sum(before[name] for name in mine), sum(after[name] for name in mine)
        exposed = sum(parts[name] for name in names)
        total += exposed * (1.0 - now / was) if was > now else was - now
    return total
