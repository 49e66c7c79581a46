"""How good the methods of `shardwise search` are. `--json` ends with one line of JSON.

One thread. Per problem and method: gap to the optimum (dynamic programming and integer programming both prove it; they
must agree), evaluations, seconds. The seeded methods run with five seeds: the middle gap is told, and the worst.
"""

# ruff: noqa: E402
import os

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"  # before numpy starts its threads

import argparse
import json
from collections.abc import Sequence
from statistics import median
from typing import Any

from shardwise.arch import model_of
from shardwise.search.methods import Group, Method, StageProblem, methods, stage_problem
from shardwise.spec.job import Job
from shardwise.spec.load import cluster_of
from shardwise.spec.policy import Policy
from shardwise.spec.stack import stack_of

BUDGET = 20_000
SEEDS = range(5)
SAME = 1e-6
PROBLEMS: dict[str, tuple[str, Sequence[tuple[str, int]], Policy, int, Sequence[int], float]] = {
    "small": ("llama-3-8b", [("8xh100", 2), ("4xa100-80", 1)], Policy(pp=3, tp=2, dp=2), 64, (2,), 1.0),
    "llama70b_mixed": (
        "llama-3-70b", [("dgx-h100:64", 8), ("dgx-a100:64", 8)], Policy(pp=16, tp=4, dp=2), 128, (4, 8), 1.0,
    ),
    "llama70b_tight": ("llama-3-70b", [("dgx-h100:64", 16)], Policy(pp=16, tp=4), 64, (4,), 0.3),
    "deepseek_mixed": (
        "deepseek-v3", [("h800:1024", 8), ("dgx-h100:1024", 8)], Policy(pp=16, dp=128, ep=64), 2048, (1, 2), 1.0,
    ),
}  # fmt: skip


def problem_of(name: str) -> StageProblem:
    model, groups, policy, batch, degrees, headroom = PROBLEMS[name]
    placed = [Group(cluster_of(on), stages) for on, stages in groups]
    return stage_problem(model_of(model), placed, Job(seq=4096, global_batch=batch), policy, stack_of("megatron-core"),
                         stage_tp=degrees, headroom=headroom)  # fmt: skip


def row(problem: StageProblem, method: Method, optimum: float) -> dict[str, Any]:
    seeds = [0] if method.exact else SEEDS
    found = [method.solve(problem, budget_evaluations=BUDGET, seed=seed) for seed in seeds]
    gaps = [s.step_s / optimum - 1.0 for s in found]
    return {
        "gap": median(gaps), "worst_gap": max(gaps), "evaluations": int(median(s.evaluations for s in found)),
        "seconds": median(s.seconds for s in found), "proven": all(s.proven for s in found),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="end with one line of JSON")
    options = parser.parse_args()
    figures: dict[str, Any] = {}
    for name in PROBLEMS:
        problem = problem_of(name)
        optimum = methods()["dp"].solve(problem)
        if not optimum.proven or optimum.assignment is None:
            raise SystemExit(f"{name}: dynamic programming ended without a proof")
        rows = {
            m.name: row(problem, m, optimum.step_s)
            for m in methods().values() if m.name != "exhaustive" or problem.points <= BUDGET
        }  # fmt: skip
        print(f"{name}: {float(problem.points):.2g} assignments, optimum {optimum.step_s:.4g} s")
        for method, told in rows.items():
            if told["proven"] and abs(told["gap"]) > SAME:
                raise SystemExit(f"{name}: {method} proved another optimum")
            print(f"  {method:11} gap {told['gap']:8.3%} worst {told['worst_gap']:8.3%} "
                  f"evaluations {told['evaluations']:6,} seconds {told['seconds']:7.3f} {told['proven']}")  # fmt: skip
        figures[name] = {"points": float(problem.points), "optimum_s": optimum.step_s, "methods": rows}
    if options.json:
        print(json.dumps(figures))


if __name__ == "__main__":
    main()
