"""How fast the best of all policies is found. `--json` ends with one line of JSON; `--full` estimates a whole space.

- policies_per_s: full estimates (time and memory, no bounds) of distinct policies on all cores, processes already
  running; Calculon's rate on two cores stands beside it (benchmarks/peers.md says how it was measured).
- gpt175b_4096_s, gpt1t_3072_s: the best of the whole space, warm, on one core: wall seconds, the fastest of three.
- points: legal policies of the larger of these two spaces; estimates: how many of them the bounds left to estimate.
- peak_rss_bytes: the most memory this process or one of its workers held.
"""

# ruff: noqa: E402
import os

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"  # before numpy starts its threads

import argparse
import json
import resource
import time
from itertools import islice
from multiprocessing import get_context

import numpy as np

from shardwise.plan import Ranking, every, scan, space
from shardwise.plan.scanning import Pricing
from shardwise.spec.arch import model_of
from shardwise.spec.cluster import Cluster
from shardwise.spec.job import Job
from shardwise.spec.load import cluster_of
from shardwise.spec.model import Model
from shardwise.spec.software import Stack, stack_of
from shardwise.work.case import case_of

Given = tuple[Model, Cluster, Job, Stack]
CALCULON = {"two cores, logging silenced": 1_535, "two cores, as shipped": 234}
BATCHES = 120
WARM_UP = 4


def case(model: str, gpus: int) -> Given:
    return model_of(model), cluster_of(f"dgx-a100:{gpus}"), Job(seq=2048, global_batch=gpus), stack_of("megatron-core")


GPT3, GPT1T = ("gpt-3-175b", 4096), ("megatron-1008b", 3072)


def fastest(given: Given) -> tuple[float, Ranking]:
    scan(case_of(*given))
    times = []
    for _ in range(3):
        begun = time.perf_counter()
        found = scan(case_of(*given))
        times.append(time.perf_counter() - begun)
    return min(times), found


def estimated(share: tuple[int, int, int | None]) -> tuple[float, float, int]:
    """(begun, ended, policies) of one worker: every so-manieth frame of the space with all its settings."""
    own, workers, batches = share
    given = case(*GPT1T)
    priced, found = Pricing(case_of(*given)), space(case_of(*given))
    stream = every(found, np.arange(own, len(found.frames), workers))
    for batch in islice(stream, WARM_UP):
        priced.price(batch)
    begun, done = time.monotonic(), 0
    for batch in islice(stream, batches):
        priced.price(batch)
        done += len(batch)
    return begun, time.monotonic(), done


def policies_per_s(batches: int | None) -> tuple[float, int]:
    """The clock runs from the first worker's start to the last one's end: waiting for each other counts."""
    cores = len(os.sched_getaffinity(0))
    with get_context("spawn").Pool(cores) as pool:
        found = pool.map(estimated, [(own, cores, batches) for own in range(cores)], chunksize=1)
    seconds = max(ended for _, ended, _ in found) - min(begun for begun, _, _ in found)
    policies = sum(done for _, _, done in found)
    return policies / seconds, policies


def peak_rss_bytes() -> int:
    return 1024 * max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="end with one line of JSON")
    parser.add_argument("--full", action="store_true", help="every policy of a space of 10^8, not some 10^6 (a minute)")
    options = parser.parse_args()
    rate, policies = policies_per_s(None if options.full else BATCHES)
    gpt3_s, gpt3 = fastest(case(*GPT3))
    gpt1t_s, gpt1t = fastest(case(*GPT1T))
    figures = {
        "policies_per_s": rate,
        "policies": policies,
        "cores": len(os.sched_getaffinity(0)),
        "calculon_policies_per_s": CALCULON["two cores, logging silenced"],
        "gpt175b_4096_s": gpt3_s,
        "gpt175b_4096_points": gpt3.points,
        "gpt1t_3072_s": gpt1t_s,
        "gpt1t_3072_points": gpt1t.points,
        "points": max(gpt3.points, gpt1t.points),
        "estimates": {"gpt175b_4096": gpt3.evaluated, "gpt1t_3072": gpt1t.evaluated},
        "peak_rss_bytes": peak_rss_bytes(),
    }
    for name, value in figures.items():
        print(f"{name:26} {value:,.4g}" if isinstance(value, float | int) else f"{name:26} {value}")
    for how, calculon in CALCULON.items():
        print(f"Calculon, {how}: {calculon:,} policies/s; this is {rate / calculon:,.0f} times that")
    if options.json:
        print(json.dumps(figures))


if __name__ == "__main__":
    main()
