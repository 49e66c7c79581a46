"""How good the methods of `shardwise search` are. `--json` ends with one line of JSON.

One thread. Per problem and method: gap, evaluations, seconds by the clock and of the processor. The gap is to the
optimum where dynamic or integer programming proves it (they must agree), else to the best bound known and, beside it,
to the best point that any method found with any seed. The seeded methods run with several seeds: the middle gap is
told, and the worst. `even` is the learner without learning: what its moves are worth alone.
"""

# ruff: noqa: E402
import os

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"  # before numpy starts its threads

import argparse
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from time import process_time
from typing import Any

import numpy as np
from msgspec.structs import replace

from shardwise.plan.search.methods import Method, Solution, methods
from shardwise.plan.search.methods import reinforcement as learner
from shardwise.plan.search.problems import GpuGroup, Problem, RandomRouting, expert_problem, rank_problem, stage_problem
from shardwise.spec.arch import model_of
from shardwise.spec.cluster import Cluster
from shardwise.spec.job import Job
from shardwise.spec.load import cluster_of
from shardwise.spec.policy import Policy
from shardwise.spec.software import stack_of
from shardwise.work.case import case_of

BUDGET = 20_000
SAME = 1e-4
CORE = stack_of("megatron-core")


def stages(
    model: str, on: Sequence[tuple[str, int]], policy: Policy, batch: int, tp: Sequence[int], headroom: float = 1.0
) -> Problem:
    shape, job = model_of(model), Job(seq=4096, global_batch=batch)
    placed = [GpuGroup(case_of(shape, cluster_of(cluster), job, CORE), count) for cluster, count in on]
    return stage_problem(placed, policy, stage_tp=tp, headroom=headroom)


def leaves(nodes: int, under: int) -> Cluster:
    """H100 nodes, so many under a leaf, whose uplinks carry a quarter of what its nodes can send."""
    whole = cluster_of("dgx-h100:16384")
    node, leaf, spine, _ = whole.levels
    levels = (node, replace(leaf, degree=under), replace(spine, degree=64, oversubscription=4.0))
    return replace(whole, name=f"leaves of {under}", gpus=nodes * 8, levels=levels)


def ranks(policy: Policy, fabric: Cluster, free: Sequence[int] = (), slow: Sequence[int] = ()) -> Problem:
    job = Job(seq=4096, global_batch=512)
    return rank_problem(case_of(model_of("llama-3-70b"), fabric, job, CORE), policy, free=free, slow=slow)


def experts(drawn: RandomRouting, replicas: int = 0) -> Problem:
    job, policy = Job(seq=4096, global_batch=2048), Policy(pp=8, dp=128, ep=64)
    case = case_of(model_of("deepseek-v3"), cluster_of("h800:1024"), job, CORE)
    return expert_problem(case, policy, sample=drawn, replicas=replicas)


def scattered() -> list[int]:
    """72 free nodes among 256, as other jobs left them."""
    return np.random.default_rng(0).choice(256, 72, replace=False).tolist()


PROBLEMS: dict[str, Callable[[], Problem]] = {
    "small": lambda: stages("llama-3-8b", [("8xh100", 2), ("4xa100-80", 1)], Policy(pp=3, tp=2, dp=2), 64, (2,)),
    "llama70b_mixed": lambda: stages(
        "llama-3-70b", [("dgx-h100:64", 8), ("dgx-a100:64", 8)], Policy(pp=16, tp=4, dp=2), 128, (4, 8)
    ),
    "llama70b_tight": lambda: stages("llama-3-70b", [("dgx-h100:64", 16)], Policy(pp=16, tp=4), 64, (4,), 0.3),
    "deepseek_mixed": lambda: stages(
        "deepseek-v3", [("h800:1024", 8), ("dgx-h100:1024", 8)], Policy(pp=16, dp=128, ep=64), 2048, (1, 2)
    ),
    "ranks_small": lambda: ranks(Policy(tp=8, pp=3, dp=4), leaves(16, 8)),
    "ranks_64": lambda: ranks(Policy(tp=8, pp=8, dp=8), leaves(64, 8)),
    "ranks_64_scattered": lambda: ranks(
        Policy(tp=8, pp=8, dp=8), leaves(256, 16), scattered(), slow=scattered()[::5]
    ),
    "experts_256": lambda: experts(RandomRouting(skew=0.3)),
    "experts_256_hot": lambda: experts(RandomRouting(skew=1.0), replicas=64),
}  # fmt: skip


@dataclass(frozen=True)
class Run:
    solution: Solution
    cpu_s: float
    """processor time: what the search took, whoever else uses the machine"""


def timed(method: Method, problem: Problem, budget: int, seed: int) -> Run:
    start = process_time()
    solution = method.solve(problem, budget_evaluations=budget, seed=seed)
    return Run(solution, process_time() - start)


def solved(problem: Problem, budget: int, seeds: Sequence[int]) -> dict[str, list[Run]]:
    found: dict[str, list[Run]] = {}
    for method in methods().values():
        if method.why_not(problem, budget):
            continue
        found[method.name] = [timed(method, problem, budget, seed) for seed in ([0] if method.exact else seeds)]
    rate, learner.RATE = learner.RATE, 0.0
    try:
        found["even"] = [timed(methods()["rl"], problem, budget, seed) for seed in seeds[:1]]
    finally:
        learner.RATE = rate
    return found


def row(runs: Sequence[Run], base: float, best: float) -> dict[str, Any]:
    found = [run.solution for run in runs]
    return {
        "gap": median(s.objective_s / base - 1.0 for s in found),
        "worst_gap": max(s.objective_s / base - 1.0 for s in found),
        "above_best": median(s.objective_s / best - 1.0 for s in found),
        "objective_s": median(s.objective_s for s in found),
        "evaluations": int(median(s.evaluations for s in found)),
        "seconds": median(s.seconds for s in found), "cpu_seconds": median(run.cpu_s for run in runs),
        "proven": all(s.proven for s in found),
    }  # fmt: skip


def measured(name: str, problem: Problem, budget: int, seeds: Sequence[int]) -> dict[str, Any]:
    found = solved(problem, budget, seeds)
    solutions = [run.solution for runs in found.values() for run in runs]
    best = min(s.objective_s for s in solutions)
    proven = [s.objective_s for s in solutions if s.proven]
    if any(abs(objective / best - 1.0) > SAME for objective in proven):
        raise SystemExit(f"{name}: a method proved an optimum that another one beat")
    bound = max([problem.bound_s, *(s.bound_s for s in solutions if s.bound_s is not None)])
    base = min(proven) if proven else bound
    default = float(problem.price(problem.default[None]).seconds[0])
    print(f"{name}: {'optimum' if proven else 'bound'} {base:.4g} s, best {best:.4g} s, unsearched {default:.4g} s")
    rows = {method: row(runs, base, best) for method, runs in found.items()}
    for method, told in rows.items():
        gaps = f"gap {told['gap']:8.3%} worst {told['worst_gap']:8.3%} above best {told['above_best']:8.3%}"
        spent = f"evaluations {told['evaluations']:6,} processor {told['cpu_seconds']:7.3f} s"
        print(f"  {method:11} {gaps} {spent} {'proven' if told['proven'] else ''}", flush=True)
    return {
        "points": float(min(problem.points, 10**300)), "optimum_s": min(proven) if proven else None, "bound_s": bound,
        "best_s": best, "default_s": default, "methods": rows,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="end with one line of JSON")
    parser.add_argument("--only", default=",".join(PROBLEMS), help="problems, apart by commas")
    parser.add_argument("--budget", type=int, default=BUDGET)
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    figures = {
        name: measured(name, PROBLEMS[name](), options.budget, range(options.seeds))
        for name in options.only.split(",")
    }  # fmt: skip
    if options.json:
        print(json.dumps(figures))


if __name__ == "__main__":
    main()
