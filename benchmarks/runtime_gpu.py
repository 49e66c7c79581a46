"""The runtime on one GPU against its prediction: step time and peak memory, and its speed against a plain loop.

`python benchmarks/runtime_gpu.py --json` needs a CUDA device. `rows`: whole jobs of one GPU, and one rank of plans for
64 to 1,024 on a process group that only pretends, where the time is the sum of the rank's own kernels. `--predict`
prints what is expected and stops, so that it can be written down first; `--only TEXT` runs the cases whose name holds
it; `--page FILE.json` writes docs/benchmarks/runtime-gpu.md from what was measured and what is predicted now.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from _runtime_gpu_cases import Case, one_gpu, ranks_of_many
from _runtime_gpu_page import write
from _step_configs import Config
from shardwise.cost.calibrate.profile import Profile, profile_of
from shardwise.spec.load import cluster_of
from shardwise.spec.software import stack_of
from shardwise.step.estimate.own_work import own_work
from shardwise.work.case import case_of

PROFILE = Path(__file__).parents[1] / "profiles" / "h200.toml"
STEPS = 10
SPEED = Config(
    "llama-8b-cut", 8, 4096, 32, 8, 14336, True, 128256, 8192, 1, 1, "none", "autocast", True
)  # fmt: skip


def cases() -> list[Case]:
    return [*one_gpu(), *ranks_of_many()]


def predicted(case: Case, profile: Profile) -> dict[str, Any]:
    gpus = case.policy.gpus
    cluster = cluster_of(f"dgx-h200:{gpus}" if gpus > 1 else "1xh200")
    own = own_work(case_of(case.model, cluster, case.job, stack_of("shardwise"), profile), case.policy)
    host = {"host": own.host_s} if gpus == 1 else {}
    parts = own.parts | host
    return {
        "name": case.name, "gpus": gpus, "rank": own.rank, "predicted_ms": 1e3 * sum(parts.values()),
        "predicted_bytes": own.peak_bytes, "parts_ms": {name: 1e3 * seconds for name, seconds in parts.items()},
        "memory_bytes": own.memory,
    }  # fmt: skip


def measured(case: Case, row: dict[str, Any], steps: int) -> dict[str, Any]:
    from shardwise.run.runtime.device import measured_on_device
    from shardwise.run.runtime.train.task import TrainingOrder, TrainingSettings

    order = TrainingOrder(task=case.task, settings=TrainingSettings(steps=10**6, device="cuda", rate=1e-5))
    found = measured_on_device(order, steps, rank=row["rank"] if row["gpus"] > 1 else None)
    time_s = found.step_s if row["gpus"] == 1 else found.kernels_s
    return row | {
        "measured_ms": 1e3 * time_s, "measured_bytes": found.peak_bytes, "spread": found.spread,
        "kernels_ms": 1e3 * found.kernels_s, "reserved_bytes": found.reserved_bytes,
        "time_error": row["predicted_ms"] / (1e3 * time_s) - 1.0,
        "memory_error": row["predicted_bytes"] / found.peak_bytes - 1.0,
    }  # fmt: skip


def plain_loop_ms() -> float:
    from measure_steps import forget, measure

    found = float(measure(SPEED, "cuda")["step_ms"])
    forget()
    return found


def told(row: dict[str, Any]) -> str:
    return (
        f"{row['name']:<28} {row['measured_ms']:9.2f} ms {row['time_error']:+7.1%}   "
        f"{row['measured_bytes'] / 2**30:7.2f} GiB {row['memory_error']:+7.1%}"
    )


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    found = {}
    for label, chosen in (
        ("one_gpu", [r for r in rows if r["gpus"] == 1]),
        ("many", [r for r in rows if r["gpus"] > 1]),
    ):
        if chosen:
            found[label] = {
                "cases": len(chosen),
                "time_error_mean": float(np.mean([abs(r["time_error"]) for r in chosen])),
                "time_error_max": max(abs(r["time_error"]) for r in chosen),
                "memory_error_mean": float(np.mean([abs(r["memory_error"]) for r in chosen])),
                "memory_error_max": max(abs(r["memory_error"]) for r in chosen),
            }
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="the last line is JSON")
    parser.add_argument("--predict", action="store_true", help="print predictions and stop")
    parser.add_argument("--only", default="", metavar="TEXT")
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--page", type=Path, metavar="FILE", help="write the page from these measurements and stop")
    parser.add_argument("--out", type=Path, help="also write the JSON here, as each case is done")
    asked = parser.parse_args()
    profile = profile_of(PROFILE)
    chosen = [case for case in cases() if asked.only in case.name]
    expected = [predicted(case, profile) for case in chosen]
    if asked.page:
        write(asked.page, expected)
        return
    if asked.predict:
        print(json.dumps({"rows": expected}))
        return
    import torch

    if not torch.cuda.is_available():
        print(json.dumps({"skipped": "no CUDA device"}))
        return
    result: dict[str, Any] = {"device": torch.cuda.get_device_name(), "torch": torch.__version__, "rows": []}
    for case, row in zip(chosen, expected, strict=True):
        try:
            result["rows"].append(measured(case, row, asked.steps))
            print(told(result["rows"][-1]), file=sys.stderr, flush=True)
        except torch.cuda.OutOfMemoryError as error:
            print(f"{case.name}: out of memory ({str(error).splitlines()[0][:80]})", file=sys.stderr, flush=True)
        if asked.out:
            asked.out.write_text(json.dumps(result), encoding="utf-8")
    own = [row["measured_ms"] for row in result["rows"] if row["name"] == SPEED.name]
    if own:
        result["llama8b_cut_ms"], result["plain_loop_ms"] = own[0], plain_loop_ms()
    result["summary"] = summary(result["rows"])
    if asked.out:
        asked.out.write_text(json.dumps(result), encoding="utf-8")
    print(json.dumps(result))


if __name__ == "__main__":
    main()
