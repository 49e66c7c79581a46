"""How fast the simulator is, and how far from the closed form. `--json` ends with one line of JSON.

One thread, processor time. tasks_per_s: the engine on the interleaved schedule of 16 stages x 4 chunks x 256
micro-batches; simpy_tasks_per_s: the same tasks as simpy processes in the same run, with the same end time to the last
digit. llama405b_16384_s: a whole step of Llama-3-405B on 16,384 H100s (TP 8, PP 16, 16 micro-batches in 8 chunks) from
the policy to the timeline, as the first thing the process does. closed_form_*: a thousand policies drawn from the
planner's own space.
"""

# ruff: noqa: E402
import os

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"  # before numpy starts its threads

import argparse
import json
import time
from collections.abc import Callable, Generator
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import simpy

from shardwise.arrays import Floats
from shardwise.plan import Limits, space, table_of
from shardwise.plan.constraints import constraints_of
from shardwise.spec.arch import model_of
from shardwise.spec.cluster import Cluster
from shardwise.spec.job import Job
from shardwise.spec.load import cluster_of
from shardwise.spec.model import Model
from shardwise.spec.policy import ORDERS, Policies, Policy
from shardwise.spec.software import stack_of
from shardwise.step.estimate.closed_form import estimate
from shardwise.step.simulate import simulate
from shardwise.step.simulate.agree import gap_of
from shardwise.step.tasks.engine import run
from shardwise.step.tasks.program import BACKWARD, Program, program_of
from shardwise.work.case import case_of

MODELS = ("llama-3-8b", "llama-3-70b", "llama-3.1-405b", "gpt-3-175b", "mixtral-8x7b", "deepseek-v3")
CLUSTERS = ("8xh100", "dgx-h100:64", "dgx-h100:256", "dgx-h100:1024", "dgx-a100:256")
POLICIES = 1_000
FAR = 0.05
STACK = stack_of("megatron-core")
OVERLAPPED = ("overlap_grad=on", "overlap_param=on", "overlap_tp=on", "overlap_pp=on")


def seconds_of(work: Callable[[], object], repeats: int = 5) -> float:
    """Processor seconds of one call: the fastest of several."""
    times = []
    for _ in range(repeats):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return min(times)


def tasks() -> tuple[Program, Floats]:
    program = program_of("interleaved", 16, 4, 256)
    noise = np.random.default_rng(0).uniform(0.9, 1.1, len(program.rank))
    return program, np.where(program.kind == BACKWARD, 2.0, 1.0) * noise


def engine_end(program: Program, duration: Floats) -> float:
    needs = len(program.tasks.need_task)
    return float(run(program.tasks, duration, np.zeros(needs), np.zeros(len(duration))).end.max())


def simpy_end(program: Program, duration: Floats) -> float:
    """One process per rank; a task waits for the event of what it needs, takes its time and sets its own event."""
    world = simpy.Environment()
    done = [world.event() for _ in duration]
    lanes, length, needs = program.tasks.lane_start.tolist(), duration.tolist(), program.needs.tolist()

    def rank(first: int, stop: int) -> Generator[Any, Any, None]:
        for task in range(first, stop):
            if needs[task] >= 0:
                yield done[needs[task]]
            yield world.timeout(length[task])
            done[task].succeed()

    for first, stop in pairwise(lanes):
        world.process(rank(first, stop))
    world.run()
    return float(world.now)


def llama_step() -> None:
    policy = Policy(tp=8, pp=16, dp=128, vpp=8, schedule="interleaved")
    job = Job(seq=8192, global_batch=2048)
    simulate(case_of(model_of("llama-3.1-405b"), cluster_of("dgx-h100:16384"), job, STACK), policy).timeline()


@cache
def fitting(model_name: str, cluster_name: str) -> tuple[Model, Cluster, Job, Policies]:
    """Policies the planner would look at and that fit into memory."""
    model, cluster, job = model_of(model_name), cluster_of(cluster_name), Job(seq=4096, global_batch=1024)
    limits = Limits(some_layers=False, offload=("none",), orders=ORDERS[:1], shard_groups=False)
    policies = table_of(space(case_of(model, cluster, job, STACK), limits, constraints_of(OVERLAPPED)))
    fits = estimate(case_of(model, cluster, job, STACK), policies).fits
    return model, cluster, job, policies.take(np.flatnonzero(fits))


def gaps(count: int, seed: int = 0) -> tuple[Floats, int]:
    """How far from the closed form, for as many policies of every model and cluster on which something fits; and how
    many are far without a reason."""
    generator = np.random.default_rng(seed)
    pools = [pool for m in MODELS for c in CLUSTERS if len((pool := fitting(m, c))[3])]
    shares, unexplained = [], 0
    for i in range(count):
        model, cluster, job, policies = pools[i % len(pools)]
        found = simulate(case_of(model, cluster, job, STACK), policies[int(generator.integers(len(policies)))])
        shares.append(abs(found.step_s / float(found.closed.times.step_s[0]) - 1.0))
        unexplained += shares[-1] > FAR and not gap_of(found).why
    return np.array(shares), unexplained


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="end with one line of JSON")
    options = parser.parse_args()
    whole_step = seconds_of(llama_step, repeats=1)  # first, so that nothing is cached
    program, duration = tasks()
    if engine_end(program, duration) != simpy_end(program, duration):
        raise SystemExit("the engine and simpy end at different times")
    shares, unexplained = gaps(POLICIES)
    figures = {
        "tasks_per_s": len(duration) / seconds_of(lambda: engine_end(program, duration)),
        "simpy_tasks_per_s": len(duration) / seconds_of(lambda: simpy_end(program, duration), repeats=3),
        "llama405b_16384_s": whole_step,
        "closed_form_policies": len(shares),
        "closed_form_gap_max": float(shares.max()),
        "closed_form_gap_p99": float(np.quantile(shares, 0.99)),
        "closed_form_gap_median": float(np.median(shares)),
        "closed_form_within_5_percent": float((shares <= FAR).mean()),
        "closed_form_far_and_unexplained": unexplained,
    }
    for name, value in figures.items():
        print(f"{name:34} {value:,.4g}")
    if options.json:
        print(json.dumps(figures))


if __name__ == "__main__":
    main()
