"""Runs with failures: does the closed form agree with runs drawn at random, and with published ones? `--json`: a line.

montecarlo_gap: largest relative difference of the mean time of drawn runs from the closed form's, over rates, stalls,
restarts and saves that land late. llama3_*: a 54-day run of 16,384 GPUs at its published rate, saved asynchronously,
with machines inspected and warm standbys. opt_restarts: of 992 GPUs in 56 days, at the lowest and the highest other
published rate, and at its own. runs_per_cpu_s: runs of that 54-day job.

faults_injected: real runs of `shardwise run` on 2 or 3 gloo ranks into which something was put that goes wrong;
faults_named: of them, those whose cause (and rank, where it is one) `shardwise why` names first. false_alarms: of
healthy_runs, those in which it names anything. Slow networks need root and `tc`, small disks root: without them those
faults are left out and counted in faults_left_out. They take half an hour and more: `--part model` leaves them away.
"""

import argparse
import json
import shutil
import sys
import tempfile
import time
from itertools import cycle, product
from pathlib import Path
from typing import TYPE_CHECKING

from shardwise.run.preflight.check import chosen
from shardwise.spec.arch import model_of
from shardwise.spec.job import Job
from shardwise.spec.load import cluster_of
from shardwise.step.operate.assumed import Conditions
from shardwise.step.operate.failures import published, published_rates
from shardwise.step.operate.goodput import Restart, Saves, goodput_of
from shardwise.step.operate.run import Operation
from shardwise.step.operate.sampled import Sampling, sample

if TYPE_CHECKING:
    from _operate_faults import Fault

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


def faults(*, every: bool, healthy_runs: int) -> dict[str, object]:
    import torch
    import torch._dynamo  # once, before anything is forked

    import shardwise.run.runtime.launch  # noqa: F401
    from _operate_cases import every_fault, healthy, left_out, models_in
    from _operate_faults import FaultyRun, run_fault

    torch.set_num_threads(1)
    without = left_out()
    cases = [fault for fault in every_fault() if every and not fault.needs & without]
    sound = [fault for _, fault in zip(range(healthy_runs), cycle(healthy()), strict=False)]
    wrong: list[str] = []
    alarms: list[str] = []
    kinds: dict[str, list[bool]] = {}
    with tempfile.TemporaryDirectory() as folder:
        models = models_in(Path(folder) / "models")

        def one(number: int, fault: "Fault") -> FaultyRun:
            place = Path(folder) / str(number)
            try:
                return run_fault(fault, models, place)
            finally:
                shutil.rmtree(place, ignore_errors=True)

        for number, fault in enumerate([*cases, *sound]):
            run = one(number, fault)
            said = ", ".join(f"{each['cause']} {each['where'] or ''}".strip() for each in run.answer["causes"])
            told = f"{fault.layout}, {fault.name or 'healthy'}: {said or 'nothing'}"
            print(f"{number + 1} of {len(cases) + len(sound)}  {'ok   ' if run.named else 'WRONG'}  {told}",
                  file=sys.stderr, flush=True)  # fmt: skip
            if fault.expect:
                kinds.setdefault(fault.expect[0], []).append(run.named)
                wrong += [] if run.named else [told]
            elif not run.named:
                alarms.append(told)
    return {
        "faults_injected": len(cases), "faults_named": len(cases) - len(wrong),
        "faults_named_share": 1 - len(wrong) / max(len(cases), 1), "faults_left_out": len(every_fault()) - len(cases),
        "faults_by_kind": {kind: f"{sum(named)} of {len(named)}" for kind, named in kinds.items()},
        "faults_not_named": wrong, "healthy_runs": len(sound), "false_alarms": len(alarms), "alarms": alarms,
    }  # fmt: skip


def main() -> None:
    asked = argparse.ArgumentParser()
    asked.add_argument("--json", action="store_true")
    asked.add_argument("--seed", type=int, default=0)
    asked.add_argument("--part", choices=("all", "model", "faults", "healthy"), default="all")
    asked.add_argument("--healthy-runs", type=int, default=60)
    given = asked.parse_args()
    found: dict[str, object] = figures(given.seed) if given.part in ("all", "model") else {}
    if given.part != "model":
        found |= faults(every=given.part != "healthy", healthy_runs=0 if given.part == "faults" else given.healthy_runs)
    if given.json:
        print(json.dumps(found))
        return
    for name, value in found.items():
        print(f"{name:28} {f'{value:,.4g}' if isinstance(value, float | int) else value}")


if __name__ == "__main__":
    main()
