"""How fast the closed form and the command line are. `--json` ends with one line of JSON; `--profile` shows hot spots.

One thread, processor time: policies_per_s_per_core is one call of the closed form over an array of legal policies of
llama-3-70b on 1,024 H100s; import, help and the two cold plans are whole processes (user + system, start-up included;
modules are compiled beforehand, as by an installation).
"""

# ruff: noqa: E402
import os

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"  # before numpy starts its threads

import argparse
import cProfile
import csv
import json
import pstats
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from shardwise.measured.validate.run import validate
from shardwise.plan import Limits, scan, space, table_of
from shardwise.plan.constraints import constraints_of
from shardwise.spec.arch import model_of
from shardwise.spec.job import Job
from shardwise.spec.load import cluster_of
from shardwise.spec.policy import ORDERS, Policies
from shardwise.spec.software import stack_of
from shardwise.step.estimate.closed_form import estimate
from shardwise.work.case import case_of

BATCH = 65_536
ROWS = 2_000
MODEL, CLUSTER, JOB = model_of("llama-3-70b"), cluster_of("dgx-h100:1024"), Job(seq=8192, global_batch=512)
STACK = stack_of("megatron-core")


def seconds_of(work: Callable[[], object], least: float = 1.0, repeats: int = 5) -> float:
    """Processor seconds of one call: the fastest of several, each warm."""
    work()
    times: list[float] = []
    begun = time.process_time()
    while len(times) < repeats or time.process_time() - begun < least:
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return min(times)


def real_policies(count: int) -> Policies:
    """Legal policies of the whole space, in a shuffled order, repeated until there are `count`."""
    limits = Limits(zero_with_stages=3, some_layers=False, offload=("none",), orders=ORDERS[:1], shard_groups=False)
    overlapped = constraints_of(["overlap_grad=on,overlap_param=on,overlap_tp=on,overlap_pp=on"])
    found = table_of(space(case_of(MODEL, CLUSTER, JOB, STACK), limits, overlapped))
    index = np.random.default_rng(0).permutation(len(found))
    return found.take(np.resize(index, count))


def policies_per_s(count: int) -> float:
    policies = real_policies(count)
    return count / seconds_of(lambda: estimate(case_of(MODEL, CLUSTER, JOB, STACK), policies))


def validate_rows_per_s() -> float:
    """Rows of a table of different runs: models, degrees and batches vary from row to row."""
    columns = ["source", "model", "gpu", "gpus", "seq", "tp", "pp", "dp", "micro_batch", "global_batch", "recompute",
               "zero_stage_or_fsdp", "software", "tokens_per_s_per_gpu"]  # fmt: skip
    models = ("llama-3-8b", "llama-3-70b", "gpt-3-175b", "mixtral-8x7b", "qwen2.5-7b")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "runs.csv"
        with path.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(columns)
            for i in range(ROWS):
                tp, pp = 2 ** (i % 4), 2 ** (i // 4 % 3)
                writer.writerow(["bench", models[i % 5], "h100", 64, 4096, tp, pp, 64 // (tp * pp), 1 + i % 2,
                                 128 * (1 + i % 3), "none", 1, "Megatron-Core", 1000 + i])  # fmt: skip
        return ROWS / seconds_of(lambda: validate(path), repeats=3)


def process_cpu_s(*arguments: str, repeats: int = 5) -> float:
    """User and system seconds of a fresh interpreter; the least of several."""
    found = []
    with tempfile.TemporaryDirectory() as compiled:
        # where writing bytecode is switched off, each run would compile shardwise anew
        given = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        for _ in range(1 + repeats):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL,
                           env=given | {"PYTHONPYCACHEPREFIX": compiled})  # fmt: skip
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            found.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(found[1:])


def plan_cpu_s(model: str, cluster: str) -> float:
    return process_cpu_s("-m", "shardwise", "plan", model, "--on", cluster, repeats=3)


def profile() -> None:
    policies = real_policies(BATCH)
    estimate(case_of(MODEL, CLUSTER, JOB, STACK), policies)
    watch = cProfile.Profile()
    watch.runcall(estimate, case_of(MODEL, CLUSTER, JOB, STACK), policies)
    pstats.Stats(watch).sort_stats("tottime").print_stats(25)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="end with one line of JSON")
    parser.add_argument("--profile", action="store_true", help="where the time of the closed form goes")
    options = parser.parse_args()
    if options.profile:
        profile()
        return
    figures = {
        "policies_per_s_per_core": policies_per_s(BATCH),
        "policies_per_s_per_core_1k": policies_per_s(1_000),
        "one_policy_s": 1 / policies_per_s(1),
        "plan_s": seconds_of(lambda: scan(case_of(MODEL, CLUSTER, JOB, STACK))),
        "validate_rows_per_s": validate_rows_per_s(),
        "import_cpu_s": process_cpu_s("-c", "import shardwise"),
        "help_cpu_s": process_cpu_s("-m", "shardwise", "--help"),
        "plan_llama70b_cpu_s": plan_cpu_s("llama-3-70b", "dgx-h100:1024"),
        "plan_gpt175b_cpu_s": plan_cpu_s("gpt-3-175b", "dgx-h100:4096"),
    }
    for name, value in figures.items():
        print(f"{name:28} {value:,.4g}")
    if options.json:
        print(json.dumps(figures))


if __name__ == "__main__":
    main()
