"""Do optimizers of whole matrices train alike in every layout, send what is predicted, and take as long?

`python benchmarks/matrix.py [--few] [--json]`. cells_equal, of `cells`: runs on gloo ranks in fp64 whose weights are
those of one process to 1e-9, parameter by parameter (tests/runtime/matrix_cells.py); bytes_equal: the same runs in fp32
whose messages are equal to the predicted ones, and memory by kind within 2 %. ns_shapes, ns_mape: torch.optim.Muon on
an H200, one matrix at a time (evidence/timed/matrix_updates.csv). published_rows, published_mape: products and steps
of others (evidence/matrix), on which nothing was fitted. `--few` runs every fifth cell; `--nccl` those of
two ranks, over NCCL on one GPU.
"""

import csv
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import numpy as np
from msgspec.structs import replace

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "runtime")]

from matrix_cells import STEPS, cells, proven  # noqa: E402

from shardwise.cost.gpu import curve_of, gemm_seconds, memory_seconds  # noqa: E402
from shardwise.plugins.optimizers import moved_besides_state, shampoo, update_rule  # noqa: E402
from shardwise.run.runtime.share_gpu import SharedGpuSeats  # noqa: E402
from shardwise.spec.arch import model_from_shape  # noqa: E402
from shardwise.spec.job import Job, optimizer_of, precision_of  # noqa: E402
from shardwise.spec.load import cluster_of, gpu_of  # noqa: E402
from shardwise.spec.policy import Policies, Policy  # noqa: E402
from shardwise.spec.software import stack_of  # noqa: E402
from shardwise.step.estimate.closed_form import estimate  # noqa: E402
from shardwise.step.estimate.once import matrix_seconds  # noqa: E402
from shardwise.work.case import case_of  # noqa: E402

WHY_NO_STEPS = "whole steps with these optimizers were not measured on an H200: no time on the machine was left"
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


def muon_errors() -> list[float]:
    """Predicted over measured, less 1, of one matrix' whole update."""
    curve, rule, precision = curve_of(gpu_of("h200")), update_rule("muon"), precision_of("fp32")
    each = moved_besides_state(precision) + rule.passes_bytes + 2 * rule.moments * precision.moment_bytes
    errors = []
    for row in rows_of("timed", "matrix_updates.csv"):
        rows, columns = float(row["rows"]), float(row["columns"])
        passes = float(memory_seconds(curve, rows * columns * each, "optimizer"))
        errors.append(1e3 * (matrix_seconds(rule, rows, columns, curve) + passes) / float(row["muon_ms"]) - 1)
    return errors


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
    timed = muon_errors()
    layouts = {layout for name in STEPS for layout in update_rule(name).layouts}
    result = {
        "optimizers": list(STEPS), "layouts": sorted(layouts),
        **cell_figures(few="--few" in sys.argv, nccl="--nccl" in sys.argv),
        "ns_shapes": len(timed), "ns_mape": float(np.mean(np.abs(timed))), "h200_step_mape": None,
        "published_rows": len(published), "published_mape": float(np.mean([abs(error) for _, error in published])),
    }  # fmt: skip
    print(f"h200_step_mape: {WHY_NO_STEPS}", file=sys.stderr)
    if "--json" in sys.argv:
        print(json.dumps(result))
    else:
        for name, value in result.items():
            print(f"{name:16} {value:.3g}" if isinstance(value, float) else f"{name:16} {value}")
    return 0 if result["cells"] == result["cells_equal"] == result["bytes_equal"] else 1


if __name__ == "__main__":
    sys.exit(main())
