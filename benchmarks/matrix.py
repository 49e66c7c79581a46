"""Do optimizers of whole matrices train alike in every layout, send what is predicted, and take as long?

`python benchmarks/matrix.py [--few] [--nccl] [--json]`. cells_equal, of `cells`: runs on gloo ranks in fp64 whose
weights are those of one process to 1e-9, parameter by parameter (tests/runtime/matrix_cells.py); bytes_equal: the same
runs in fp32 whose messages are equal to the predicted ones, and memory by kind within 2 %. ns_shapes, ns_mape: Newton-
Schulz on an H200 (evidence/matrix/h200-newton-schulz.csv), by the law of all products with nothing fitted;
ns_mape_first: as predicted before it was timed. factor_mape: QR and eigenvectors of the sides that
evidence/fit_factors.py leaves out. h200_step_mape: whole steps of the runtime there, by optimizer in
h200_by_optimizer; h200_step_mape_first: as predicted before they ran. published_rows, published_mape: products and
steps of others, on which nothing was fitted. `--few` runs every fifth cell; `--nccl` those of two ranks, over NCCL on
one GPU.
"""

import csv
import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from unittest.mock import patch

import numpy as np
from msgspec.structs import replace

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "runtime")]

from matrix_cells import STEPS, cells, proven  # noqa: E402

from matrix_gpu import newton_schulz_s, predictions  # noqa: E402
from shardwise.cost.gpu import curve_of, factoring_seconds, gemm_seconds  # noqa: E402
from shardwise.plugins.optimizers import shampoo, update_rule  # noqa: E402
from shardwise.run.runtime.share_gpu import SharedGpuSeats  # noqa: E402
from shardwise.spec.arch import model_from_shape  # noqa: E402
from shardwise.spec.job import Job, optimizer_of  # noqa: E402
from shardwise.spec.load import cluster_of, gpu_of  # noqa: E402
from shardwise.spec.policy import Policies, Policy  # noqa: E402
from shardwise.spec.software import stack_of  # noqa: E402
from shardwise.step.estimate.closed_form import estimate  # noqa: E402
from shardwise.work.case import case_of  # noqa: E402

WAITS = ("llama-160m", "llama-160m-short", "llama-deep")
"""models whose GPU waits for the host, whose speed changed by half between two runs (docs/benchmarks/runtime-gpu.md)"""
GPT2 = model_from_shape("gpt2-124m", 12, 768, 6, 6, 3072, False, 50304, tied=True)
OWNED = {"muon", "shampoo"}
"""in the published steps; the others are replicated"""


def rows_of(*path: str) -> list[dict[str, str]]:
    return list(csv.DictReader(ROOT.joinpath("evidence", *path).read_text().splitlines()))


def cell_figures(*, few: bool, nccl: bool) -> dict[str, int]:
    found, seats = dict.fromkeys(("cells", "cells_equal", "bytes_equal"), 0), SharedGpuSeats() if nccl else None
    for name in STEPS:
        chosen = [cell for cell in cells(name, few=few) if cell.policy.gpus == 2 or not nccl]
        for proof in proven(name, chosen, seats):
            found["cells"] += 1
            found["cells_equal"] += proof.equal
            found["bytes_equal"] += proof.bytes_equal
            if not (proof.equal and proof.bytes_equal):
                print(f"{name} {proof.cell.name}: {proof.worst:.1e}, {proof.verification}", file=sys.stderr)
    return found


def newton_schulz_errors() -> tuple[list[float], list[float]]:
    """Predicted over measured, less 1: today's, and the first."""
    rows = [row for row in rows_of("matrix", "h200-newton-schulz.csv") if row["batch"] == "1"]
    times = [float(row["captured_ms"]) for row in rows]
    now = [1e3 * newton_schulz_s(int(row["rows"]), int(row["columns"])) for row in rows]
    first = [float(row["predicted_first_ms"]) for row in rows]
    return [p / t - 1 for p, t in zip(now, times, strict=True)], [p / t - 1 for p, t in zip(first, times, strict=True)]


def factor_errors() -> list[float]:
    curve, found = curve_of(gpu_of("h200")), []
    for kind, least in (("qr", 0), ("eigh", 512)):
        mine = [
            row for row in rows_of("matrix", "h200-factors.csv") if row["what"] == kind and int(row["rows"]) > least
        ]
        found += [1e3 * factoring_seconds(curve, kind, float(r["rows"])) / float(r["ms"]) - 1 for r in mine[1::2]]
    return found


def h200_errors(expected: Iterable[tuple[str, str, float]]) -> dict[str, list[float]]:
    """By optimizer. SOAP: the mean of ten steps, one with new bases; others: the median behind the third step."""
    steps: dict[tuple[str, str], list[float]] = {}
    for row in rows_of("matrix", "h200-steps.csv"):
        steps.setdefault((row["model"], row["optimizer"]), []).append(float(row["ms"]))
    found: dict[str, list[float]] = {}
    for model, optimizer, ms in expected:
        if model not in WAITS and (times := steps.get((model, optimizer))):
            took = float(np.mean(times[10:]) if optimizer == "soap" else np.median(times[3:]))
            found.setdefault(optimizer, []).append(ms / took - 1)
            print(f"{model} {optimizer}: {took:.1f} ms, {ms / took - 1:+.1%}", file=sys.stderr)
    return found


def product_errors() -> Iterator[tuple[str, float]]:
    for row in rows_of("matrix", "products.csv"):
        side = int(row["dim"])
        seconds = float(gemm_seconds(curve_of(gpu_of(row["gpu"])), side, side, side))
        yield f"{row['gpu']} {side}", 1e3 * seconds / float(row["torch_ms"]) - 1


def step_errors() -> Iterator[tuple[str, float]]:
    """Priced as torchtitan, the compiled PyTorch program known here that is nearest. Owners of these runs have whole
    gradients; the nearest layout is ZeRO 1 with owners."""
    for row in rows_of("matrix", "steps.csv"):
        name, gpus = row["optimizer"], int(row["gpus"])
        job = replace(Job(seq=1024, global_batch=512), optimizer=optimizer_of(name))
        case = case_of(GPT2, cluster_of(f"{gpus}x{row['gpu']}"), job, stack_of("torchtitan"))
        policy = Policy(dp=gpus, zero=int(name in OWNED), micro_batch=64)
        with patch.multiple(shampoo, EVERY=10, BLOCK=8192.0):
            step = float(estimate(case, Policies.of([policy])).times.step_s[0])
        yield f"step {name}", 1e3 * step / float(row["step_ms"]) - 1


def main() -> int:
    published = [*product_errors(), *step_errors()]
    for name, error in published:
        print(f"{name:16} {error:+.1%}", file=sys.stderr)
    (timed, first), by_optimizer = newton_schulz_errors(), h200_errors(predictions())
    rows = rows_of("matrix", "h200-steps-predicted.csv")
    before = h200_errors((row["model"], row["optimizer"], float(row["predicted_ms"])) for row in rows)
    steps, blind = ([abs(e) for errors in found.values() for e in errors] for found in (by_optimizer, before))
    layouts = {layout for name in STEPS for layout in update_rule(name).layouts}
    result = {
        "optimizers": list(STEPS), "layouts": sorted(layouts),
        **cell_figures(few="--few" in sys.argv, nccl="--nccl" in sys.argv),
        "ns_shapes": len(timed), "ns_mape": float(np.mean(np.abs(timed))),
        "ns_mape_first": float(np.mean(np.abs(first))), "factor_mape": float(np.mean(np.abs(factor_errors()))),
        "h200_steps": len(steps), "h200_step_mape": float(np.mean(steps)),
        "h200_step_mape_first": float(np.mean(blind)),
        "h200_by_optimizer": {name: float(np.mean(np.abs(errors))) for name, errors in by_optimizer.items()},
        "published_rows": len(published), "published_mape": float(np.mean([abs(error) for _, error in published])),
    }  # fmt: skip
    if "--json" in sys.argv:
        print(json.dumps(result))
    else:
        for name, value in result.items():
            print(f"{name:16} {value:.3g}" if isinstance(value, float) else f"{name:16} {value}")
    return 0 if result["cells"] == result["cells_equal"] == result["bytes_equal"] else 1


if __name__ == "__main__":
    sys.exit(main())
