"""What the named cuts of `shardwise search cuts` cost near and far; the methods' speed. `--json` ends with one line.

tp 8, 8,192 tokens, bf16, DGX H100; methods on one thread, the same four best cuts asked of each. A method whose answer
differs from enumeration ends the run.
"""

# ruff: noqa: E402
import os

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"  # before numpy starts its threads

import argparse
import json
import time
from typing import Any

from shardwise.plan.search.cut_study import MOST_POINTS, study
from shardwise.plan.search.methods import methods
from shardwise.plan.search.problems.cuts import CutGraph, CutProblem, block_of, chain, machine_at
from shardwise.spec.arch import model_of
from shardwise.spec.job import precision_of
from shardwise.spec.load import cluster_of
from shardwise.spec.software import stack_of
from shardwise.step.estimate.machine import Machine

RANKS, TOKENS, BEST, SAME = 8, 8192, 4, 1e-9
PRECISION = precision_of("bf16")


def graphs() -> dict[str, CutGraph]:
    blocks = [("llama-3-8b", "attention"), ("llama-3-8b", "mlp"), ("mixtral-8x7b", "moe"), ("llama-3-70b", "layer"),
              ("deepseek-v3", "layer")]  # fmt: skip
    found = {"talk": chain([4096, 16384, 4096, 4096], RANKS, TOKENS, PRECISION),
             "chain of 64": chain([4096, 16384] * 32 + [4096], RANKS, TOKENS, PRECISION)}  # fmt: skip
    return found | {
        f"{model} {block}": block_of(model_of(model), block, RANKS, 1, TOKENS, PRECISION) for model, block in blocks
    }


def timed(graph: CutGraph, machine: Machine) -> dict[str, Any]:
    problem = CutProblem(graph.with_ends("replicated"), machine)
    rows: dict[str, Any] = {}
    truth: list[float] | None = None
    for name, method in methods().items():
        if not method.exact or method.why_not(problem, MOST_POINTS):
            continue
        start = time.process_time()
        solved = method.solve(problem, budget_evaluations=MOST_POINTS, count=BEST)
        rows[name] = time.process_time() - start
        if not solved.proven:
            raise SystemExit(f"{graph.name}: {name} proved nothing")
        found = [float(problem.price(each[None]).seconds[0]) for each in solved.ranked]
        truth = truth or found
        if any(abs(a - b) > SAME * b for a, b in zip(found, truth, strict=True)):
            raise SystemExit(f"{graph.name}: {name} found {found}, another method {truth}")
    return {"assignments": float(problem.graph.points), "cpu_s": rows}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="end with one line of JSON")
    options = parser.parse_args()
    cluster, stack = cluster_of("dgx-h100:1024"), stack_of("megatron-core")
    strides = {"NVLink": 1, "nodes": cluster.node_size}
    places = {name: machine_at(cluster, stack, PRECISION, RANKS, apart) for name, apart in strides.items()}
    figures: dict[str, Any] = {}
    for name, graph in graphs().items():
        told = timed(graph, places["NVLink"])
        print(f"{name}: {told['assignments']:.2g} assignments, "
              + ", ".join(f"{method} {spent:.3f} s" for method, spent in told["cpu_s"].items()))  # fmt: skip
        ends = ("replicated", "tokens") if graph.block else ("replicated",)
        points = []
        for point in study(graph, places, ends=ends, top=0).points:
            times = {place: priced.seconds for place, priced in point.at.items()}
            sent = point.at["NVLink"].sent_bytes
            points.append({"names": point.names, "time_s": times, "sent_bytes": sent,
                           "weight_bytes": point.at["NVLink"].weight_bytes})  # fmt: skip
            print(f"  {', '.join(point.names):60} " + " ".join(f"{t * 1e3:8.3f} ms" for t in times.values()))
        figures[name] = told | {"points": points}
    if options.json:
        print(json.dumps(figures))


if __name__ == "__main__":
    main()
