"""Rank placement: which nodes of the fabric a policy's nodes lie on."""

from dataclasses import dataclass
from typing import Annotated, Any

from msgspec.structs import replace

from shardwise.arrays import Ints
from shardwise.plan.search.problems._contract import Problem
from shardwise.plan.search.problems._kind import PointTable, ProblemKind, SearchInput, SearchSpace, ranges_of
from shardwise.plan.search.problems.ranks._build import rank_problem, rank_problem_at
from shardwise.plan.search.problems.ranks._problem import RankProblem
from shardwise.spec.arch import model_of
from shardwise.spec.job import Job
from shardwise.spec.load import cluster_of
from shardwise.spec.policy import Policies, Policy
from shardwise.spec.software import stack_of
from shardwise.step.estimate.closed_form import estimate
from shardwise.units import time_text
from shardwise.work.case import case_of

__all__ = ["PROBLEM", "RankProblem", "rank_problem", "rank_problem_at"]


@dataclass(frozen=True, kw_only=True)
class RankOptions:
    free_nodes: Annotated[str | None, "nodes to use, as 0-15,40-63; default: the first."] = None
    slow_nodes: Annotated[str | None, "nodes with slower NICs, as 8-15."] = None
    slow_speed: Annotated[float, "speed of those, as a share."] = 0.5


def _space(given: SearchInput, options: RankOptions) -> SearchSpace:
    given.check_legal()
    case = given.case
    problem = rank_problem(
        case, given.policy, free=ranges_of(options.free_nodes, "free-nodes"),
        slow=ranges_of(options.slow_nodes, "slow-nodes"), slow_speed=options.slow_speed,
    )  # fmt: skip
    step = float(estimate(case, Policies.of([given.policy])).times.step_s[0])
    return SearchSpace(
        problem=problem, clusters=case.cluster.name, objective="network", default="ranks in order",
        title=f"{case.model.name} on {case.cluster.name}: {problem.nodes} nodes",
        notes=[
            "seconds of the network in a step, before any overlap with compute",
            f"the whole step takes {time_text(step)} in closed form, ranks in order",
            "rings for gradients and parameters, in the order of the ranks; pairwise all-to-all; uplinks are shared "
            "by all groups at once",
        ],
        facts={"nodes": problem.nodes, "boxes": dict(zip(problem.box_names, problem.room, strict=True)),
               "estimate_step_s": step},
        table=lambda point: _table(problem, point), best=lambda point: _json(problem, point),
    )  # fmt: skip


def _table(problem: RankProblem, point: Ints) -> PointTable:
    before, after = problem.parts_s(problem.default), problem.parts_s(point)
    rows = [(name, f"{before[name] * 1e3:,.2f}", f"{after[name] * 1e3:,.2f}") for name in before]
    return PointTable(["collective", "in order, ms", "best, ms"], rows, 1)


def _json(problem: RankProblem, point: Ints) -> dict[str, Any]:
    return {"node_box": [problem.box_names[box] for box in point[: problem.nodes]], "parts_s": problem.parts_s(point),
            "default_parts_s": problem.parts_s(problem.default)}  # fmt: skip


def _examples() -> dict[str, Problem]:
    """Leaves of four nodes, uplinks of a quarter: pipelines and replicas; and nodes that others left, some slow."""
    model, stack, whole = model_of("llama-3-70b"), stack_of("megatron-core"), cluster_of("dgx-h100:16384")
    few, odd = Job(seq=4096, global_batch=64), Job(seq=4096, global_batch=66)
    node, leaf, spine, _ = whole.levels
    levels = (node, replace(leaf, degree=4), replace(spine, degree=64, oversubscription=4.0))
    fabric = replace(whole, gpus=256, levels=levels)
    return {
        "replicas of a pipeline": rank_problem(
            case_of(model, replace(fabric, gpus=64), few, stack), Policy(tp=8, pp=2, dp=4)
        ),
        "scattered nodes": rank_problem(
            case_of(model, fabric, odd, stack), Policy(tp=8, pp=2, dp=3), free=[0, 1, 5, 6, 7, 9, 14], slow=[5, 6],
        ),
    }  # fmt: skip


PROBLEM = ProblemKind(
    name="ranks", summary="nodes of the policy on the fabric", options=RankOptions, methods=("rl",), space=_space,
    examples=_examples,
)  # fmt: skip
