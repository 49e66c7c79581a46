"""Expert placement: which rank of an expert-parallel group holds which experts."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from shardwise.arrays import Ints
from shardwise.plan.search.problems._contract import Problem
from shardwise.plan.search.problems._kind import PointTable, ProblemKind, SearchInput, SearchSpace
from shardwise.plan.search.problems.experts._build import RandomRouting, expert_problem, sample_of
from shardwise.plan.search.problems.experts._problem import ExpertProblem
from shardwise.spec.arch import model_of
from shardwise.spec.job import Job
from shardwise.spec.load import cluster_of
from shardwise.spec.policy import Policy
from shardwise.spec.software import stack_of
from shardwise.work.case import case_of

__all__ = ["PROBLEM", "ExpertProblem", "RandomRouting", "expert_problem", "sample_of"]

WORDS = {
    "imbalance": "fullest rank / mean", "visits_per_token": "nodes a token visits",
    "busiest_node": "busiest node / mean", "products_s": "GEMMs, ms", "exchange_s": "exchanges, ms",
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class ExpertOptions:
    routing: Annotated[Path | None, "a measured sample, one token's experts a line."] = None
    skew: Annotated[float, "of a drawn sample, popularity as 1 / rank^skew."] = RandomRouting.skew
    sample: Annotated[int, "tokens of a drawn sample."] = RandomRouting.tokens
    sample_seed: Annotated[int, "seed of a drawn sample."] = RandomRouting.seed
    replicas: Annotated[int, "further copies of the hottest ones."] = 0


def _space(given: SearchInput, options: ExpertOptions) -> SearchSpace:
    given.check_legal()
    drawn = RandomRouting(skew=options.skew, seed=options.sample_seed, tokens=options.sample)
    case, sample = given.case, drawn if options.routing is None else sample_of(options.routing)
    problem = expert_problem(case, given.policy, replicas=options.replicas, sample=sample)
    told = f"drawn, skew {drawn.skew:g}, seed {drawn.seed}" if options.routing is None else str(options.routing)
    return SearchSpace(
        problem=problem, clusters=case.cluster.name, objective="expert layer", default="experts in order",
        title=f"{case.model.name} on {case.cluster.name}: {problem.positions} experts on {problem.ranks} ranks",
        notes=[
            f"{len(problem.tokens):,} tokens routed: {told}",
            "expert GEMMs of the fullest rank and four exchanges, one layer, one micro-batch",
            "a token crosses to each node once and is handed on inside it",
        ],
        facts={"experts": problem.positions, "ranks": problem.ranks},
        table=lambda point: _table(problem, point), best=lambda point: _json(problem, point),
    )  # fmt: skip


def _table(problem: ExpertProblem, point: Ints) -> PointTable:
    before, after = (problem.told(p) for p in (problem.default, point))
    rows = []
    for name, shown in WORDS.items():
        factor = 1e3 if name.endswith("_s") else 1.0
        rows.append((shown, f"{before[name] * factor:.3f}", f"{after[name] * factor:.3f}"))
    return PointTable(["", "in order", "best"], rows, 1)


def _json(problem: ExpertProblem, point: Ints) -> dict[str, Any]:
    held = [[expert for expert, rank in enumerate(point.tolist()) if rank == own] for own in range(problem.ranks)]
    return {"rank_experts": held, **problem.told(point), "in_order": problem.told(problem.default)}


def _examples() -> dict[str, Problem]:
    """Eight experts, two a rank and two ranks a node; and with replicas."""
    model, stack, job = model_of("mixtral-8x7b"), stack_of("megatron-core"), Job(seq=4096, global_batch=64)
    return {
        "eight experts": expert_problem(
            case_of(model, cluster_of("4x2xh100"), job, stack), Policy(dp=8, ep=4), sample=RandomRouting(tokens=60)
        ),
        "replicas": expert_problem(
            case_of(model, cluster_of("2x1xh100"), job, stack), Policy(dp=2, ep=2),
            sample=RandomRouting(seed=1, tokens=20), replicas=2,
        ),
    }  # fmt: skip


PROBLEM = ProblemKind(
    name="experts", summary="experts on the ranks of a group", options=ExpertOptions, methods=("dp", "rl"),
    space=_space, examples=_examples,
)  # fmt: skip
