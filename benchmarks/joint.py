"""What one search over everything brings beside today's plan, and how many trials it takes to find the best policy.

    python benchmarks/joint.py [--only layouts|mixed|trials] [--json]

problems: published layouts (the same job on the same cluster and program) and clusters of unlike parts. For each, the
best that `plan` finds without the joint search: on one cluster its first policy; of unlike parts the best of each part
alone, all GPUs taken for the weakest, and replicas that share the batch. worse_than_plan, better_than_plan: of the
joint answer, by the same estimate. mean_gain: throughput, or steps a dollar, over the plan's, less 1. gap_max: how far
an answer is above the bound that nothing undercuts; proven: problems where it is not. trials_to_99: trials until one
has reached 0.99 of the best measured, in the mean over recorded jobs (measured runs of others stand for the cluster);
beside it the median, the order of the plan, and a random order. *_foreign: the same with predictions by a stack whose
constants never saw the recorded program.
"""

import argparse
import json
import sys
import time
from typing import Any

import numpy as np

from _joint_cases import MIXED, MixedCase
from _joint_trials import trial_figures
from shardwise.measured.validate.layouts import PublishedLayout, published_runs
from shardwise.plan import scan
from shardwise.plan.choice import RISK
from shardwise.plan.exhaustive import HEADROOM
from shardwise.plan.search.joint_parts import known_lines
from shardwise.plan.search.joint_placement import placement_matters, without_uplinks
from shardwise.plan.search.joint_study import JointResult, problem_of, problem_of_parts, solved
from shardwise.plan.search.problems.joint import ClusterPart, LineRequest, PartLink
from shardwise.spec.arch import model_of
from shardwise.spec.job import Job
from shardwise.spec.load import cluster_of
from shardwise.spec.software import stack_of
from shardwise.step.estimate.chance import most_bytes
from shardwise.units import rate_of
from shardwise.work.case import case_of

SAME = 1e-9
"""shares by which two objectives may differ and be the same"""
BUDGET = 20_000


def of_layout(layout: PublishedLayout) -> JointResult:
    case = case_of(model_of(layout.model), layout.cluster, layout.job, layout.stack)
    ranked = scan(case, top=1, losers=False)
    placed = placement_matters(layout.cluster)
    widest = without_uplinks(case) if placed else None
    request = LineRequest(case, ranked.limit_bytes, planned=bool(ranked.best), open_case=widest)
    problem = problem_of(ranked.best, [request])
    return solved(problem, budget=BUDGET, placed_on=case if placed else None)


def of_mixed(asked: MixedCase) -> JointResult:
    stack, job = stack_of("megatron-core"), Job(seq=asked.seq, global_batch=asked.global_batch)
    cases = [case_of(model_of(asked.model), cluster_of(name), job, stack) for name in asked.parts]
    rents = [c.cluster.gpus * rent / 3600 for c, rent in zip(cases, asked.rents, strict=True)] if asked.rents else []
    parts = [
        ClusterPart(case, min(HEADROOM * case.cluster.gpu.memory_bytes,
                       case.cluster.gpu.memory_bytes - case.stack.memory.reserve_bytes, most_bytes(case, RISK)),
             rents[place] if rents else 0.0)
        for place, case in enumerate(cases)
    ]  # fmt: skip
    link = PartLink(rate_of(asked.link))
    known = known_lines(parts, link, stack, {})
    return solved(problem_of_parts(known, parts, link), budget=BUDGET)


def told(name: str, result: JointResult, seconds: float, *, quiet: bool) -> dict[str, Any]:
    gain = result.gain if result.gain is not None else np.inf
    row = {"problem": name, "planned": result.plain, "joint": result.objective, "gain": gain, "gap": result.gap,
           "proven": result.gap <= SAME, "seconds": seconds, "lines": len(result.problem.lines)}  # fmt: skip
    if not quiet:
        print(f"{name:75s} {result.plain:10.4g} {result.objective:10.4g} {gain:+8.2%} gap {result.gap:6.2%} "
              f"{seconds:6.1f} s", flush=True)  # fmt: skip
    return row


def searched(which: str, *, quiet: bool) -> list[dict[str, Any]]:
    asked: list[tuple[str, Any, Any]] = []
    if which in ("layouts", ""):
        asked += [(layout.name, of_layout, layout) for layout in published_runs()]
    if which in ("mixed", ""):
        asked += [(case.name, of_mixed, case) for case in MIXED]
    rows = []
    for name, ask, what in asked:
        begun = time.process_time()
        result = ask(what)
        rows.append(told(name, result, time.process_time() - begun, quiet=quiet))
    return rows


def main() -> None:
    given = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    given.add_argument("--only", choices=("layouts", "mixed", "trials"), default="")
    given.add_argument("--json", action="store_true", help="end with one line of JSON")
    flags = given.parse_args()
    figures: dict[str, Any] = {}
    if flags.only != "trials":
        rows = searched(flags.only, quiet=False)
        gains = np.array([row["gain"] for row in rows])
        known = gains[np.isfinite(gains)]
        figures |= {
            "problems": len(rows), "worse_than_plan": int((gains < -SAME).sum()),
            "better_than_plan": int((gains > SAME).sum()), "mean_gain": float(known.mean()),
            "median_gain": float(np.median(known)), "gap_max": max(row["gap"] for row in rows),
            "gap_mean": float(np.mean([row["gap"] for row in rows])), "proven": sum(row["proven"] for row in rows),
            "seconds": sum(row["seconds"] for row in rows), "rows": rows,
        }  # fmt: skip
    if flags.only in ("trials", ""):
        figures |= trial_figures()
    if flags.json:
        print(json.dumps(figures))
    else:
        print({name: value for name, value in figures.items() if name != "rows"}, file=sys.stdout)


if __name__ == "__main__":
    main()
