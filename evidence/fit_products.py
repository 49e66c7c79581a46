"""Fits the GEMM law (`cost/gpu.py`) in 16 bits on one H200 to the GEMMs of whole programs.

    python evidence/fit_products.py gather STEPS.csv KERNELS.csv.gz --out evidence/timed/trace-products-h200.csv
    python evidence/fit_products.py fit 0.84          # constants and errors, with that share of the clock sustained

`gather` takes what `trace_look.py` measured: products whose sides are multiples of 8, by shape and program; `duty` is
the share of the step that products, convolutions and attention take. `fit_kernels.py` calls `fit` and writes what it
finds.
"""

import argparse
import csv
import gzip
import json
import re
import sys
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shardwise.cost.calibrate.fitting import GEMM_BOUNDS, GEMM_SCALE, least_squares, with_gemm
from shardwise.cost.curve import curve_of
from shardwise.cost.gpu import gemm_seconds
from shardwise.spec.hardware import gpu_of

TABLE = Path(__file__).resolve().parent.parent / "evidence" / "timed" / "trace-products-h200.csv"
FIELDS = ["name", "batch", "m", "n", "k", "calls", "us", "duty"]
PRODUCTS = ("mm", "addmm", "bmm", "baddbmm")
MATRIX_UNITS = (*PRODUCTS, "_cudnn_attention_forward", "_cudnn_attention_backward", "cudnn_convolution",
                "convolution_backward")  # fmt: skip
WIDE = ("f32f32_f32f32", "sgemm", "f32_f32", "gemmSN", "gemv")
"""in the names of kernels for 32 bits"""
BESIDE = ("splitK", "Memset")
"""kernels that a product runs besides its own"""
FREE = ("e_max", "k0", "wave", "memory_efficiency", "kernel_floor_s")
FOLDS = 5
Floats = NDArray[np.float64]


def gathered(steps: Path, kernels: Path) -> list[dict[str, Any]]:
    with steps.open(encoding="utf-8", newline="") as file:
        whole = {row["name"]: 1e3 * float(row["step_ms"]) for row in csv.DictReader(file) if row["step_ms"]}
    busy: Counter[str] = Counter()
    found: dict[tuple[str, int, int, int, int, str], list[float]] = defaultdict(lambda: [0.0, 0.0])
    with gzip.open(kernels, "rt", encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            op = row["operator"].removeprefix("aten::")
            if op in MATRIX_UNITS:
                busy[row["name"]] += float(row["us"])
            shapes = [tuple(map(int, part.split(","))) for part in re.findall(r"\[([\d,]+)\]", row["shapes"])]
            if op not in PRODUCTS or any(word in row["kernel"] for word in WIDE):
                continue
            first, second = shapes[:2] if op in ("mm", "bmm") else shapes[-2:]
            batch, m, k, n = (first[0] if len(first) == 3 else 1), *first[-2:], second[-1]
            if len(first) < 2 or len(second) < 2 or any(side % 8 for side in (m, n, k)) or "[4,32]" in row["shapes"]:
                continue
            spent = found[row["name"], batch, m, n, k, op]
            spent[0] += float(row["us"])
            spent[1] += 0 if any(word in row["kernel"] for word in BESIDE) else int(row["count"])
    return [dict(zip(FIELDS, (name, batch, m, n, k, int(calls), round(us / calls, 2),
                              round(min(busy[name] / whole[name], 1.0), 3)), strict=True))
            for (name, batch, m, n, k, _), (us, calls) in found.items() if calls and name in whole]  # fmt: skip


def columns() -> dict[str, Floats]:
    with TABLE.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    names = sorted({row["name"] for row in rows})
    found = {name: np.array([float(row[name]) for row in rows]) for name in FIELDS[1:]}
    return found | {"fold": np.array([names.index(row["name"]) % FOLDS for row in rows], dtype=np.float64)}


def predict(constants: dict[str, float], c: dict[str, Floats]) -> Floats:
    """Seconds. `constants`: of the law of 16 bits, its `sustained` among them."""
    curve = with_gemm(curve_of(gpu_of("h200")), "bf16", constants | {"power": 4.0})
    return np.asarray(gemm_seconds(curve, c["m"], c["n"], c["k"], batch=c["batch"], duty=c["duty"]))


def fit(c: dict[str, Floats], sustained: float) -> dict[str, float]:
    """The constants in FREE with a clock that falls to `sustained`."""
    spent = c["us"] * c["calls"]
    weight = np.sqrt(np.minimum(spent / np.median(spent), 20))
    scale = [GEMM_SCALE[name] for name in FREE]

    def residual(x: Floats) -> Floats:
        predicted = predict(dict(zip(FREE, x, strict=True)) | {"sustained": sustained}, c)
        return np.log(predicted * 1e6 / c["us"]) * weight

    low, high = zip(*(GEMM_BOUNDS[name] for name in FREE), strict=True)
    found = least_squares(residual, scale, low, high, scale, robust=0.1)
    return dict(zip(FREE, map(float, found), strict=True))


def held_out(c: dict[str, Floats], sustained: float) -> dict[str, float]:
    """Every fifth program is predicted by constants of the others; the mean weighs shapes by their time."""
    errors = np.empty(len(c["m"]))
    for fold in range(FOLDS):
        x = fit({name: column[c["fold"] != fold] for name, column in c.items()}, sustained)
        out = c["fold"] == fold
        errors[out] = np.abs(predict(x | {"sustained": sustained}, c)[out] * 1e6 / c["us"][out] - 1.0)
    return {"mape": float(np.average(errors, weights=c["us"] * c["calls"])), "median_ape": float(np.median(errors))}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("verb", choices=("gather", "fit"))
    parser.add_argument("given", nargs="*", type=Path, help="gather: the two tables of trace_look.py; fit: a share")
    parser.add_argument("--out", type=Path, help="gather: CSV to write")
    asked = parser.parse_args()
    if asked.verb == "fit":
        c, sustained = columns(), float(str(asked.given[0]))
        print(json.dumps({"shapes": len(c["m"]), "constants": fit(c, sustained), "held_out": held_out(c, sustained)}))
        return 0
    with asked.out.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(gathered(*asked.given))
    return 0


if __name__ == "__main__":
    sys.exit(main())
