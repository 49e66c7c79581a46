"""Where the nodes of a policy lie, and what that saves of its step: rank placement inside the joint search.

The step's own estimate says what each kind of communication makes it longer by with ranks in order than on a network
where all nodes lie under one leaf, which no placement undercuts. A placement saves of that what it saves of the kind's
time on the network. What a placement makes longer counts in full.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

import numpy as np
from msgspec.structs import replace

from shardwise.plan.search.methods import method_of
from shardwise.plan.search.problems.ranks import rank_problem
from shardwise.spec.cluster import Cluster
from shardwise.spec.policy import Policies, Policy
from shardwise.step.estimate.closed_form import estimate
from shardwise.step.estimate.synced import SyncChoice
from shardwise.work.case import Case

BUDGETS = {"rl": 3_000, "zeroth": 1_000}
"""placements tried for one policy"""
MOST_LEARNED = 128
"""nodes up to which moves are learned: of more, looking at every node and box takes minutes"""
PARTS = {"tp": ("tp_comm",), "cp": ("cp_comm",), "ep": ("ep_comm",), "pp": ("pp_comm",)}
REPLICAS = ("grad_comm", "param_comm")
Times = Mapping[str, float]


@dataclass(frozen=True)
class JointPlacement:
    nodes: tuple[str, ...]
    """the block of the fabric that each node of the policy lies in"""
    before_s: float
    """the network's seconds of a step with ranks in order, before any overlap"""
    after_s: float
    saved_s: float
    """of the step"""


def placement_matters(cluster: Cluster) -> bool:
    """Whether some uplinks carry less than what hangs below them: else every place is about as good."""
    return len(cluster.levels) > 2 and any(level.oversubscription > 1 for level in cluster.levels[2:])


def without_uplinks(case: Case) -> Case:
    """On a network with every node under one leaf: no placement is faster than any on it."""
    node, *network = case.cluster.levels
    leaf = replace(
        network[0], degree=prod(level.degree for level in network), oversubscription=1.0, mesh=(), torus=(),
        bandwidth=max(level.bandwidth for level in network), latency_s=min(level.latency_s for level in network),
    )  # fmt: skip
    return case.on(replace(case.cluster, levels=(node, leaf)))


def step_of(case: Case, policy: Policy, sync: SyncChoice | None) -> float:
    return _parts(case, policy, sync)[0]


def placement_of(
    case: Case, open_case: Case, policy: Policy, sync: SyncChoice | None, seed: int = 0
) -> JointPlacement | None:
    """None where nothing is better than ranks in order, or the policy's groups cannot be placed. `open_case`: without
    uplinks."""
    try:
        problem, widest = rank_problem(case, policy), rank_problem(open_case, policy)
    except ValueError:
        return None
    method = "rl" if problem.nodes <= MOST_LEARNED else "zeroth"
    point = method_of(method).solve(problem, budget_evaluations=BUDGETS[method], seed=seed).point
    if point is None:
        return None
    step, parts = _parts(case, policy, sync)
    least, least_parts = _parts(open_case, policy, sync)
    ways = [each.parts_s(where) for each, where in
            ((problem, problem.default), (problem, point), (widest, widest.default))]  # fmt: skip
    lost = {name: max(seconds - least_parts[name], 0.0) for name, seconds in parts.items()}
    saved = min(step / max(step - parts["other"], 1e-12) * _saved(lost, *ways), step - least)
    if saved <= 0:
        return None
    names = tuple(problem.box_names[box] for box in point[: problem.nodes])
    return JointPlacement(names, sum(ways[0].values()), sum(ways[1].values()), saved)


def _parts(case: Case, policy: Policy, sync: SyncChoice | None) -> tuple[float, dict[str, float]]:
    """The step, and by what it is long."""
    times = estimate(case, Policies.of([policy]), sync=sync).times
    return float(times.step_s[0]), {name: float(np.asarray(seconds)[0]) for name, seconds in times.parts.items()}


def _saved(lost: Times, before: Times, after: Times, least: Times) -> float:
    """`lost`: to uplinks, of the step, by its parts. The others: seconds on the network by collective."""
    total = 0.0
    for names in (*PARTS.values(), REPLICAS):
        mine = [name for name in before if PARTS.get(name.split()[0], REPLICAS) == names]
        was, now, open_ = (sum(each.get(name, 0.0) for name in mine) for each in (before, after, least))
        if now > was:
            total -= now - was
        elif was > open_:
            total += sum(lost[name] for name in names) * min((was - now) / (was - open_), 1.0)
    return total
