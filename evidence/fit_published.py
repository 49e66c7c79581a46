"""Constants of the kernel laws from single published measurements, where no sweep of a GPU is public.

`python evidence/fit_published.py` prints them by GPU, with what they leave of each measurement; they stand in the
[kernels] of src/shardwise/catalog/gpus beside their source. Too few points fix all constants of a law, so those of a
near GPU are held unless the points move them. Where only the best shapes are told, a GPU is set beside H100 as the same
table has it: what is best among many shapes lies above what a law says of all.
"""

import csv
import sys
from collections import defaultdict
from pathlib import Path

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from shardwise.cost.calibrate.fitting import Attentions, Products, fit_attention, fit_gemm, least_squares, with_gemm
from shardwise.cost.curve import AttentionLaw, Curve, curve_of
from shardwise.cost.gpu import attention_seconds, gemm_seconds
from shardwise.spec.hardware import gpu_of

TABLES = Path(__file__).resolve().parents[1] / "evidence" / "timed"
HELD = 0.05
"""how much a constant may cost that leaves its start by one scale, in the logarithm of time"""
FREE = {"v100": ("e_max", "k0", "wave"), "mi325x": ("e_max",), "mi350x": ("e_max", "wave")}
NEAR = {"v100": "a100-80", "mi325x": "mi300x", "mi350x": "mi355x"}
BESIDE_H100 = ("gh200", "h100-pcie", "h100-nvl")
START = {
    "forward": AttentionLaw(e_max=0.8, seq0=400.0, dim0=21.0, work0=8e3),
    "backward": AttentionLaw(e_max=0.7, seq0=540.0, dim0=21.0, work0=8e3),
}
BLACKWELL = {"forward": AttentionLaw(e_max=0.8, seq0=650.0, dim0=60.0, work0=14e3),
             "backward": AttentionLaw(e_max=0.65, seq0=1000.0, dim0=60.0, work0=12e3)}  # fmt: skip
"""shape constants of H200"""
Rows = list[dict[str, str]]


def read(name: str) -> Rows:
    with (TABLES / name).open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def products(rows: Rows) -> Products:
    m, n, k, tflops = (np.array([float(row[name]) for row in rows]) for name in ("m", "n", "k", "tflops"))
    return Products(m, n, k, 2 * m * n * k / (tflops * 1e12))


def attentions(rows: Rows) -> Attentions:
    """Without a mask a query meets twice the keys that a causal one meets on average."""
    seq, dim, heads, tflops, causal = (
        np.array([float(row[name]) for row in rows]) for name in ("seq", "head_dim", "batch_heads", "tflops", "causal")
    )
    wider = 2.0 - causal
    flops = 2 * seq**2 * dim * heads * wider
    flops *= np.array([2.5 if row["pass"] == "backward" else 1.0 for row in rows])
    return Attentions(flops, seq * wider, dim, heads / wider, flops / (tflops * 1e12))


def shares(curve: Curve, dtype: str, constants: dict[str, float], points: Products) -> NDArray[np.float64]:
    """Time by the law, without its sustained rate, over time measured."""
    law = with_gemm(curve, dtype, constants)
    found = gemm_seconds(law, points.m, points.n, points.k, dtype, duty=0.0, quantise=False)
    return np.asarray(found / points.seconds)


def print_products(gpu: str, rows: Rows) -> None:
    dtype, near = rows[0]["dtype"], curve_of(gpu_of(NEAR[gpu])).gemm_law(rows[0]["dtype"])
    start = {name: float(getattr(near, name)) for name in ("e_max", "k0", "wave", "memory_efficiency")}
    curve = with_gemm(curve_of(gpu_of(gpu)), dtype, start)
    short, long = ([row for row in rows if row["runs"] == runs] for runs in ("short", "long"))
    apart = len(short) > len(long)
    points = products(short if apart else rows)
    found = fit_gemm(points, curve, dtype, FREE[gpu], prior=HELD)
    left = shares(curve, dtype, found, points)
    told = f"{len(left)} products, law over measured {left.min():.2f} to {left.max():.2f}"
    print(gpu, {name: round(value, 4) for name, value in found.items()}, told)
    if apart:
        print(f"  sustained {np.median(shares(curve, dtype, found, products(long))):.3f}")


def print_beside(gpu: str, rows: Rows, h100: Rows) -> None:
    """The share of peak that H100's law has, times this GPU's best over H100's in each table that has both."""
    ratios = []
    for table in dict.fromkeys(row["source"].split()[0] for row in rows):
        mine, other = (
            np.mean([float(row["tflops"]) for row in each if row["source"].startswith(table)]) for each in (rows, h100)
        )
        ratios.append(float(mine / other))
    law = curve_of(gpu_of("h100")).gemm_law("bf16")
    share = float(np.mean(ratios)) * law.e_max * law.peak / gpu_of(gpu).peak("bf16")
    print(gpu, {"e_max": round(share, 4)}, "rate over that of h100:", ", ".join(f"{ratio:.3f}" for ratio in ratios))


def print_attention() -> None:
    groups: dict[tuple[str, str, str], Rows] = defaultdict(list)
    for row in read("attention-published.csv"):
        if row["pass"] in START:
            groups[row["gpu"], row["kernel"], row["pass"]].append(row)
    for (gpu, kernel, side), rows in groups.items():
        law = fit_attention(attentions(rows), curve_of(gpu_of(gpu)), side == "backward", START[side], prior=HELD)
        print(gpu, kernel, side, len(rows), law)


def timed(rows: Rows) -> Attentions:
    """Causal attention, of some in a window: a query meets half of a sequence on average, or all of a window."""
    heads, seq, dim, ms = (np.array([float(row[name]) for row in rows]) for name in ("heads", "seq", "head_dim", "ms"))
    value = np.array([float(row.get("value_dim", row["head_dim"])) for row in rows])
    window = np.array([float(row.get("window", row["seq"])) for row in rows])
    back = np.array([row["pass"] == "backward" for row in rows])
    queries = np.array([float(row["sequences"]) for row in rows]) * heads * seq
    flops = 2 * queries * (window - window**2 / (2 * seq)) * np.where(back, 3 * dim + 2 * value, dim + value)
    keys = np.minimum(2 * window, seq)
    return Attentions(flops, keys, dim, queries / keys, ms / 1e3)


def print_blackwell() -> None:
    """cuDNN's timings of whole sequences and of windows, together."""
    groups: dict[tuple[str, str], Rows] = defaultdict(list)
    for row in read("attention-blackwell.csv") + read("attention-window.csv"):
        if row["gpu"] != "h200":
            groups[row["gpu"], row["pass"]].append(row)
    for (gpu, side), rows in groups.items():
        print(gpu, "flash", side, len(rows), shaped(timed(rows), curve_of(gpu_of(gpu)), side, BLACKWELL[side]))


def shaped(points: Attentions, curve: Curve, side: str, start: AttentionLaw) -> AttentionLaw:
    """All but `work0`: each of these timings fills the GPU."""

    def law(x: NDArray[np.float64]) -> AttentionLaw:
        return AttentionLaw(e_max=float(x[0]), seq0=float(x[1]), dim0=float(x[2]), work0=start.work0)

    def residual(x: NDArray[np.float64]) -> NDArray[np.float64]:
        tried = replace(curve, attention={"flash": {side: law(x)}})
        return np.log(attention_seconds(tried, *points[:4], backward=side == "backward") / points.seconds)

    first = np.array([start.e_max, start.seq0, start.dim0])
    return law(least_squares(residual, first, (0.05, 0.0, 0.0), (1.0, 5e3, 300.0), first, robust=None))


def main() -> int:
    by_gpu: dict[str, Rows] = defaultdict(list)
    for row in read("products-published.csv"):
        by_gpu[row["gpu"]].append(row)
    for gpu in FREE:
        print_products(gpu, by_gpu[gpu])
    for gpu in BESIDE_H100:
        print_beside(gpu, by_gpu[gpu], by_gpu["h100"])
    print_attention()
    print_blackwell()
    return 0


if __name__ == "__main__":
    sys.exit(main())
