"""Fit the [kernels] of src/shardwise/catalog/gpus and report their error on shapes held out.

`python evidence/fit_kernels.py` prints the table, `--write` also rewrites that table of the files, `--json` ends
with one line of JSON. The measurements are read from ../shared/truth; without them there is nothing to fit. Sweeps of
chips that are not there stand in evidence/timed/product-sweeps.csv: microseconds, a column for each sweep.
Held out: the (n, k) pairs are dealt into five folds, each judged by constants fitted on the other four.
"""

import csv
import datetime
import json
import sys
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

import fit_products
from _kernel_facts import (
    ATTENTION,
    BURST_FLOOR_S,
    CHIPS,
    FP4,
    FP4_STATED,
    LEAST_FLOOR_S,
    MEMORY,
    SUSTAINED,
    WGRAD,
    Chip,
)
from shardwise.arrays import Floats
from shardwise.cost.calibrate.fitting import Attentions, Products, fit_attention, fit_gemm
from shardwise.cost.curve import AttentionLaw, Curve, GemmLaw, curve_of
from shardwise.cost.gpu import attention_seconds, gemm_seconds
from shardwise.spec.hardware import gpu_of

ROOT = Path(__file__).resolve().parents[1]
TRUTH = ROOT.parent / "shared" / "truth"
GPUS = ROOT / "src" / "shardwise" / "catalog" / "gpus"
SWEEPS = ROOT / "evidence" / "timed" / "product-sweeps.csv"
FOLDS = 5
POWERS = (2.0, 4.0)
"""of the mean of a GEMM's two bounds: the better one on shapes held out is taken; in fp8 the cast covers the corner"""
AT_LIMIT = "l40s"
"""its sweeps ran at the power limit, which rounds the corner itself"""
ROUNDS = 4
"""in which the sustained clock and the other constants of programs' GEMMs settle"""
DTYPES = {"bf16": "bf16", "fp8": "fp8", "fp8-block": "fp8_block128"}
START = {
    "e_max": 0.8, "kernel_floor_s": 3e-6, "memory_efficiency": 0.85, "cast_bytes": 6.0, "wave": 3e5, "k0": 50.0,
}  # fmt: skip
UNITS = {"kernel_floor_s": 1e-6, "wave": 1e5}


def read(name: str) -> list[dict[str, str]]:
    with (TRUTH / name).open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def swept() -> list[dict[str, str]]:
    """The columns of SWEEPS as rows of gemm.csv."""
    rows = []
    with SWEEPS.open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            sides = {side: row.pop(side) for side in "mnk"}
            work = 2.0 * int(sides["m"]) * int(sides["n"]) * int(sides["k"])
            for head, micros in row.items():
                gpu, dtype, source = head.split(" ", 2)
                if micros:
                    told = {"gpu": gpu, "dtype": DTYPES[dtype], "source": source}
                    rows.append(told | sides | {"tflops": str(work / float(micros) / 1e6)})
    return rows


def products(rows: list[dict[str, str]]) -> Products:
    m, n, k, tflops = (np.array([float(row[c]) for row in rows]) for c in ("m", "n", "k", "tflops"))
    return Products(m, n, k, 2 * m * n * k / (tflops * 1e12))


def bursts(rows: list[dict[str, str]], chip: Chip, dtype: str) -> list[dict[str, str]]:
    """The kernel sweeps to fit on. vLLM's block-scaled rows have a 78 us host floor and are left out."""
    return [
        row
        for row in rows
        if row["gpu"] in (chip.truth_name, chip.name)
        and row["dtype"] == DTYPES[dtype]
        and row["source"].startswith("aiconfigurator")
        and not (dtype == "fp8-block" and "vllm" in row["source"])
    ]


def curve(chip: Chip, dtype: str, x: Floats, power: float = 2.0) -> Curve:
    narrow = dtype != "bf16"
    gpu = gpu_of(chip.name)
    law = GemmLaw(
        peak=gpu.peak("fp8" if narrow else "bf16"),
        e_max=x[0],
        sustained=1.0,
        k0=x[5],
        wave=x[4] * 1e5,
        memory_efficiency=x[2],
        power=power,
        element_bytes=1.0 if narrow else 2.0,
        cast_bytes=x[3] if narrow else 0.0,
    )
    return Curve(
        gpu=chip.name,
        measured=chip.name,
        source="",
        bandwidth=gpu.memory_bandwidth,
        kernel_floor_s=x[1] * 1e-6,
        gemm={dtype: law},
        attention={},
        memory={},
        attention_peak=gpu.peak("bf16"),
    )


def predict(chip: Chip, dtype: str, x: Floats, p: Products, power: float, **flags: bool) -> Floats:
    return np.asarray(gemm_seconds(curve(chip, dtype, x, power), p.m, p.n, p.k, dtype, duty=0.0, **flags))


def fit(chip: Chip, dtype: str, p: Products, power: float) -> Floats:
    """Log error of time, robust; shapes a training step seldom has count a fifth."""
    weight = np.where((p.m >= 512) & (p.flops >= 1e9), 1.0, 0.2)
    free = [name for name in START if dtype != "bf16" or name != "cast_bytes"]
    found = START | fit_gemm(p, curve(chip, dtype, vector(START), power), dtype, free, weight=weight)
    return vector(found)


def vector(constants: dict[str, float]) -> Floats:
    """The constants in the order and the units `curve` reads them."""
    return np.array([constants[name] / UNITS.get(name, 1.0) for name in START])


def errors(predicted: Floats, measured: Floats) -> dict[str, float]:
    error = predicted / measured - 1
    return {
        "n": int(error.size),
        "median_ape": round(float(np.median(np.abs(error))), 4),
        "mape": round(float(np.abs(error).mean()), 4),
        "bias": round(float(error.mean()), 4),
    }


def held_out(chip: Chip, dtype: str, p: Products, power: float) -> dict[str, dict[str, float]]:
    fold = (p.n * 7919 + p.k * 104729).astype(np.int64) // 512 % FOLDS
    predicted = np.empty_like(p.seconds)
    for one in range(FOLDS):
        x = fit(chip, dtype, p.where(fold != one), power)
        predicted[fold == one] = predict(chip, dtype, x, p.where(fold == one), power)
    large = p.large
    return {"all": errors(predicted, p.seconds), "large": errors(predicted[large], p.seconds[large])}


def as_shipped(chip: Chip, dtype: str, p: Products) -> dict[str, dict[str, float]]:
    """Error of the files as they stand, in sample: their floor is the device's, not the benchmark's."""
    shipped = curve_of(gpu_of(chip.name))
    predicted = np.asarray(gemm_seconds(shipped, p.m, p.n, p.k, dtype, duty=0.0))
    large = p.large
    return {
        "shipped_all": errors(predicted, p.seconds),
        "shipped_large": errors(predicted[large], p.seconds[large]),
    }


def ratio(chip: Chip, dtype: str, x: Floats, p: Products, power: float) -> float:
    """How much slower than the burst curve these products ran: the median of burst over measured time."""
    x = x.copy()
    x[1] = min(x[1], BURST_FLOOR_S * 1e6)
    p = p.where(p.large)
    return float(np.median(predict(chip, dtype, x, p, power, quantise=False) / p.seconds))


def sustained(chip: Chip, dtype: str, x: Floats, power: float, rows: list[dict[str, str]]) -> tuple[float, str]:
    stated = SUSTAINED[chip.name][dtype]
    if stated.value is not None:
        return stated.value, stated.source
    if stated.match == "h200_gemm":
        hot = products(read("h200_gemm.csv"))
        # The sweep ran by growing m; from 4096 on the chip is warm, and shorter products are host-bound.
        hot = hot.where((hot.m >= 4096) & (hot.seconds > 60e-6))
    else:
        hot = products([row for row in rows if stated.match in row["source"] and row["gpu"] == stated.gpu])
    return round(ratio(chip, dtype, x, hot, power), 3), f"{stated.source}, {hot.large.sum()} products"


def wgrad(chip: Chip, x: Floats, power: float, rows: list[dict[str, str]]) -> tuple[float, str]:
    system = WGRAD[chip.name]
    mine = [row for row in rows if system in row["source"]]
    forward = products([row for row in mine if "layout=TN" in row["source"]])
    weight = products([row for row in mine if "layout=NT" in row["source"] and "out=fp32" in row["source"]])
    value = ratio(chip, "bf16", x, forward, power) / ratio(chip, "bf16", x, weight, power)
    return round(value, 3), f"SimuMax {system}: layout NT into fp32 against TN, {len(weight.m)} products"


def section(chip: Chip, dtype: str, rows: list[dict[str, str]]) -> tuple[dict[str, Any], dict[str, Any]]:
    mine = bursts(rows, chip, dtype)
    p = products(mine)
    powers = POWERS if dtype == "bf16" and chip.name != AT_LIMIT else POWERS[:1]
    tried = {power: held_out(chip, dtype, p, power) for power in powers}
    power = min(powers, key=lambda one: tried[one]["all"]["mape"] + tried[one]["large"]["mape"])
    hold = tried[power]
    x = fit(chip, dtype, p, power)
    factor, hot_source = sustained(chip, dtype, x, power, rows)
    grad, grad_source = wgrad(chip, x, power, rows) if dtype == "bf16" else (1.0, "not measured")
    names = sorted({row["source"].split(" (")[0] for row in mine})
    constants = {
        "e_max": round(x[0], 4),
        "sustained": factor,
        "k0": round(x[5], 1),
        "wave": float(round(x[4] * 1e5, -2)),
        "memory_efficiency": round(x[2], 3),
        "power": power,
        "cast_bytes": round(x[3], 2) if dtype != "bf16" else 0.0,
        "wgrad_fp32": grad,
        "bench_floor_s": round(x[1] * 1e-6, 8),
        "rows": len(mine),
        "fitted_from": ", ".join(names),
        "sustained_from": hot_source,
        "wgrad_from": grad_source,
        "held_out_all": f"median {hold['all']['median_ape']:.1%}, mean {hold['all']['mape']:.1%}",
        "held_out_large": f"median {hold['large']['median_ape']:.1%}, mean {hold['large']['mape']:.1%}",
    }
    return constants, hold


def of_programs(chip: Chip, rows: list[dict[str, str]]) -> dict[str, Any]:
    """Constants of the H200's 16 bits from GEMMs in programs; `sustained` from GEMMs one behind the other."""
    c, factor, source, found = fit_products.columns(), 1.0, "", dict[str, float]()
    for _ in range(ROUNDS):
        found = fit_products.fit(c, factor)
        factor, source = sustained(chip, "bf16", vector(START | found), 4.0, rows)
    error = fit_products.held_out(c, factor)
    return {
        "e_max": round(found["e_max"], 4),
        "sustained": factor,
        "k0": round(found["k0"], 1),
        "wave": float(round(found["wave"], -2)),
        "memory_efficiency": round(found["memory_efficiency"], 3),
        "power": 4.0,
        "rows": len(c["m"]),
        "fitted_from": "evidence/timed/trace-products-h200.csv: GEMMs of 75 programs",
        "sustained_from": source,
        "held_out_all": f"median {error['median_ape']:.1%}, mean by time {error['mape']:.1%}",
    }


def narrower(fp8: dict[str, Any], stated: float | None) -> dict[str, Any]:
    """fp4 is not measured: the constants of fp8 at its own peak, or the share of it that is stated."""
    kept = {key: fp8[key] for key in ("e_max", "sustained", "k0", "wave", "memory_efficiency", "cast_bytes")}
    if stated is None:
        return kept | {"fitted_from": "not measured: as fp8 (NVIDIA, cuBLAS 12.9: fp4 up to 2.3 times fp8)"}
    return kept | {"e_max": stated, "fitted_from": FP4_STATED}


def attention_law(chip: Chip, backward: bool) -> tuple[AttentionLaw, dict[str, float]]:
    rows = [row for row in read("h200_attention.csv") if row["pass"] == ("backward" if backward else "forward")]
    names = ("batch", "heads", "seq", "head_dim", "time_us", "tflops_causal")
    batch, heads, seq, dim, micros, tflops = (np.array([float(row[c]) for row in rows]) for c in names)
    points = Attentions(tflops * micros * 1e6, seq, dim, batch * heads, micros * 1e-6)
    base = curve(chip, "bf16", np.array([1, BURST_FLOOR_S * 1e6, 1, 0, 0, 0]))
    found = fit_attention(points, base, backward, AttentionLaw(e_max=0.8, seq0=300.0, dim0=20.0, work0=1e4))
    whole = AttentionLaw(**{name: round(value, 3) for name, value in msgspec.structs.asdict(found).items()})
    both = msgspec.structs.replace(base, attention={"flash": {"backward" if backward else "forward": found}})
    predicted = attention_seconds(both, *points[:4], backward=backward)
    return whole, errors(np.asarray(predicted), points.seconds)


def toml(value: Any) -> str:
    return json.dumps(value) if isinstance(value, str) else repr(float(value) if isinstance(value, float) else value)


def write(chip: Chip, sections: dict[str, dict[str, Any]], attention: dict[str, Any], floor: float) -> None:
    """The table stands last in the GPU's file; what the data sheet says, before it, stays as it is."""
    lines = [
        "[kernels]",
        "# Written by evidence/fit_kernels.py; cost/gpu.py states the laws. SI units.",
        f"source = {toml(chip.source)}",
        f"date = {toml(datetime.date.today().isoformat())}",
        f"kernel_floor_s = {toml(round(floor, 8))}",
        *([f"sdpa = {toml(chip.sdpa)}"] if chip.sdpa else []),
    ]
    for dtype, constants in sections.items():
        lines += ["", f"[kernels.gemm.{dtype}]", *(f"{key} = {toml(value)}" for key, value in constants.items())]
    for kernel, (source, passes) in attention.items():
        for side, law in passes.items():
            lines += ["", f"[kernels.attention.{kernel}.{side}]", f"# {source}"]
            lines += [f"{key} = {toml(float(value))}" for key, value in msgspec.structs.asdict(law).items()]
    source, shares = MEMORY[chip.name]
    lines += ["", "[kernels.memory]", f"# {source}", *(f"{kind} = {toml(share)}" for kind, share in shares.items())]
    path = GPUS / f"{chip.name}.toml"
    sheet, _, _ = path.read_text(encoding="utf-8").partition("[kernels]\n")
    path.write_text(sheet + "\n".join(lines) + "\n", encoding="utf-8")


def main(arguments: list[str]) -> int:
    if not (TRUTH / "gemm.csv").is_file():
        print(f"skipped: no measurements at {TRUTH}")
        return 0
    rows = read("gemm.csv") + swept()
    h200 = next(chip for chip in CHIPS if chip.name == "h200")
    passes = {side: attention_law(h200, side == "backward") for side in ("forward", "backward")}
    report: dict[str, Any] = {"attention h200": {side: error for side, (_, error) in passes.items()}}
    sdpa = ("torch 2.11 SDPA on H200, causal, 10 shapes", {side: law for side, (law, _) in passes.items()})
    for chip in CHIPS:
        sections: dict[str, dict[str, Any]] = {}
        for dtype in chip.dtypes:
            sections[dtype], hold = section(chip, dtype, rows)
            report[f"{chip.name} {dtype}"] = hold
            print(f"{chip.name:8} {dtype:10}", *(f"{part}: {value}" for part, value in hold.items()))
        if chip.name == "h200":
            sections["bf16"].pop("held_out_large")
            sections["bf16"] |= of_programs(chip, rows)
        if chip.name in FP4:
            sections["fp4"] = narrower(sections["fp8"], FP4[chip.name])
        if "--write" in arguments:
            flash = {"flash": sdpa} if chip.name in ("h100", "h200") else {}
            write(
                chip,
                sections,
                flash | ATTENTION[chip.name],
                min(max(sections["bf16"]["bench_floor_s"], LEAST_FLOOR_S), BURST_FLOOR_S),
            )
    for chip in CHIPS:
        for dtype in chip.dtypes:
            shipped = as_shipped(chip, dtype, products(bursts(rows, chip, dtype)))
            report[f"{chip.name} {dtype}"] |= shipped
            print(f"{chip.name:8} {dtype:10}", *(f"{part}: {value}" for part, value in shipped.items()))
    print("attention h200 (in sample)", report["attention h200"])
    if "--json" in arguments:
        print(json.dumps(report))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
