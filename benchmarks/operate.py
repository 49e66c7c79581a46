"""Runs with failures: does the closed form agree with runs drawn at random, and with published ones? `--json`: a line.

montecarlo_gap: largest relative difference of the mean time of drawn runs from the closed form's, over rates, stalls,
restarts and saves that land late. llama3_*: a 54-day run of 16,384 GPUs at its published rate, saved asynchronously,
with machines inspected and warm standbys. opt_restarts: of 992 GPUs in 56 days, at the lowest and the highest other
published rate, and at its own. runs_per_cpu_s: runs of that 54-day job.
"""

import argparse
import json
import time
from itertools import product

from shardwise.arch import model_of
from shardwise.operate.assumed import Conditions
from shardwise.operate.failures import published, published_rates
from shardwise.operate.goodput import Restart, Saves, goodput_of
from shardwise.operate.run import Operation
from shardwise.operate.sampled import Sampling, sample
from shardwise.preflight.check import chosen
from shardwise.spec.job import Job
from shardwise.spec.load import cluster_of

DAY = 86_400.0
RUNS = 10_000


def montecarlo_gap(seed: int) -> float:
    worst = 0.0
    grid = product((2_000.0, 11_135.0, 80_000.0), (0.5, 10.0, 120.0), (0.0, 50.0), (60.0, 900.0))
    for number, (between, stall, lands, recovery) in enumerate(grid):
        saves = Saves(kind="async" if lands else "sync", stall_s=stall, lands_s=lands, bytes=0.0)
        restart = Restart(detect_s=300.0, schedule_s=200.0, start_s=recovery, load_s=30.0)
        found = goodput_of(saves, restart, between)
        drawn = sample(54 * DAY, found.interval_s, saves, restart, between, Sampling(runs=500, seed=seed + number))
        worst = max(worst, abs(drawn.seconds.mean() * found.share / (54 * DAY) - 1.0))
    return worst


def llama_3() -> Operation:
    return Operation(
        model=model_of("llama-3.1-405b"), job=Job(seq=8192, global_batch=2048), cluster=cluster_of("dgx-h100:16384"),
        step_s=6.3, work_s=54 * DAY, rates=published_rates("llama-3"),
        conditions=Conditions(detect="inspected", standby=True),
    )  # fmt: skip


def figures(seed: int) -> dict[str, object]:
    run = llama_3()
    found = run.goodput()
    begun = time.process_time()
    drawn = sample(
        54 * DAY * found.share, found.interval_s, run.saves, run.restart, run.between_s, Sampling(runs=RUNS, seed=seed)
    )
    spent = time.process_time() - begun
    others = [56 * DAY / rates.mean_between_s(992) for rates in published() if rates.name != "opt-175b"]
    return {
        "montecarlo_gap": montecarlo_gap(seed),
        "llama3_interruptions": 54 * DAY / run.between_s,
        "llama3_interruptions_drawn": float(drawn.failures.mean()),
        "llama3_effective": found.share,
        "opt_restarts": 56 * DAY / published_rates("opt-175b").mean_between_s(992),
        "opt_restarts_at_other_rates": [min(others), max(others)],
        "runs_per_cpu_s": RUNS / spent,
        "runs_10000_cpu_s": spent,
        "preflight_items": len(chosen()),
    }


def main() -> None:
    asked = argparse.ArgumentParser()
    asked.add_argument("--json", action="store_true")
    asked.add_argument("--seed", type=int, default=0)
    given = asked.parse_args()
    found = figures(given.seed)
    if given.json:
        print(json.dumps(found))
        return
    for name, value in found.items():
        print(f"{name:28} {value if isinstance(value, list) else f'{value:,.4g}'}")


if __name__ == "__main__":
    main()
