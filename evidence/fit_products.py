"""Fits how fast products of 16-bit matrices go (`trace/product_rates.py`) to those of whole programs.

    python evidence/fit_products.py gather STEPS.csv KERNELS.csv.gz --out evidence/timed/trace-products-h200.csv
    python evidence/fit_products.py fit                                    # prints the constants and their errors

`gather` takes what `trace_look.py` measured: products whose sides are multiples of 8, by shape and program; `duty` is
the share of the step that products, convolutions and attention take.
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
from scipy.optimize import least_squares

TABLE = Path(__file__).resolve().parent.parent / "evidence" / "timed" / "trace-products-h200.csv"
FIELDS = ["name", "batch", "m", "n", "k", "calls", "us", "duty"]
PRODUCTS = ("mm", "addmm", "bmm", "baddbmm")
MATRIX_UNITS = (*PRODUCTS, "_cudnn_attention_forward", "_cudnn_attention_backward", "cudnn_convolution",
                "convolution_backward")  # fmt: skip
WIDE = ("f32f32_f32f32", "sgemm", "f32_f32", "gemmSN", "gemv")
"""in the names of kernels for 32 bits"""
BESIDE = ("splitK", "Memset")
"""kernels that a product runs besides its own"""
NAMES = ("SHARE", "BEGIN", "EDGE", "floor_us", "MEMORY_SHARE", "CLOCK", "CUT_us", "TOGETHER")
LOW, START, HIGH = (
    [0.5, 0, 0, 0, 0.5, 0, 0, 1.2], [0.85, 40, 0.1, 2.5, 0.9, 0.1, 2.0, 3.0], [1.1, 200, 1, 6, 1.2, 0.4, 10, 8]
)  # fmt: skip
SMS, PEAK, BANDWIDTH = 132, 989.4e6, 4.8e6
"""of the GPU measured, per microsecond"""


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


def law(x: NDArray[np.float64], columns: dict[str, NDArray[np.float64]]) -> NDArray[np.float64]:
    from shardwise.trace.product_rates import CUT_BANDWIDTH, CUTS, TILES

    share, begin, edge, floor, memory, clock, cut_us, p = x
    batch, m, n, k = (columns[name] for name in ("batch", "m", "n", "k"))
    best = np.full(len(m), np.inf)
    for rows, wide in TILES:
        tiles = batch * np.ceil(m / rows) * np.ceil(n / wide)
        rate = PEAK * share / (1 + edge * (64 / rows + 64 / wide)) * (1 - clock * columns["duty"])
        for cut in CUTS:
            spent = np.ceil(tiles * cut / SMS) * SMS * rows * wide * (k / cut + begin) * 2 / rate
            if cut > 1:
                spent = spent + cut_us + 4 * cut * batch * m * n / (BANDWIDTH * CUT_BANDWIDTH)
            best = np.minimum(best, spent)
    moved = batch * ((m + n) * k + m * n) * 2 / (BANDWIDTH * memory)
    return np.asarray(floor + (best**p + moved**p) ** (1 / p))


def fit() -> dict[str, Any]:
    with TABLE.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    columns = {name: np.array([float(row[name]) for row in rows]) for name in FIELDS[1:]}
    spent = columns["us"] * columns["calls"]
    weights = np.sqrt(np.minimum(spent / np.median(spent), 20))

    def off(x: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.log(law(x, columns) / columns["us"])

    found = least_squares(lambda x: off(x) * weights, START, bounds=(LOW, HIGH), loss="soft_l1", f_scale=0.1)
    errors = np.abs(off(found.x))
    return {"shapes": len(rows), "constants": dict(zip(NAMES, map(float, found.x.round(4)), strict=True)),
            "mean_by_time": float(np.average(errors, weights=spent)), "median": float(np.median(errors))}  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("verb", choices=("gather", "fit"))
    parser.add_argument("given", nargs="*", type=Path, help="gather: the two tables of trace_look.py")
    parser.add_argument("--out", type=Path, help="gather: CSV to write")
    asked = parser.parse_args()
    if asked.verb == "fit":
        print(json.dumps(fit(), indent=1))
        return 0
    with asked.out.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(gathered(*asked.given))
    return 0


if __name__ == "__main__":
    sys.exit(main())
