"""Measured points -> the sections of a profile. Points are plain mappings, as a profile keeps them."""

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
from msgspec.structs import asdict, replace

from shardwise.arrays import Floats
from shardwise.cost.calibrate.fitting import Attentions, Products, fit_attention, fit_gemm
from shardwise.cost.calibrate.profile import AttentionConstants, GemmConstants, HostMeasurement, Point, Profile
from shardwise.cost.curve import AttentionLaw, Curve, curve_of
from shardwise.cost.gpu import attention_seconds
from shardwise.spec.gpu import Gpu

PRIOR = 0.02
"""pull towards the shipped constants, in log error per typical size of a constant"""
WHOLE_FIT = 8
"""points from which all constants of a product are fitted; with fewer only the rate is"""
WHOLE_ATTENTION = 6
UNKNOWN_PEAK = 1.25
"""a device without a datasheet: its peak is taken this far above the best rate seen"""
NOT_BINDING = 1e15
"""bytes/s where memory was not measured: the products then say all there is"""
MEMORY_KINDS = {
    "copy": "stream", "add": "stream", "rms_norm": "norm", "gelu": "activation", "adamw": "optimizer",
}  # fmt: skip
Points = Mapping[str, Sequence[Point]]


def profile_from_points(head: Profile, points: Points, gpu: Gpu | None) -> Profile:
    """`head` with the sections its points allow. `gpu`: the catalog's, or None for a device it does not know."""
    peaks = _peaks(points, gpu)
    bandwidth = gpu.memory_bandwidth if gpu is not None else UNKNOWN_PEAK * _best_stream(points)
    curve = curve_of(gpu) if gpu is not None else _plain(curve_of(_stranger(head.device, peaks, bandwidth)))
    single = {str(row["what"]): float(row["seconds"]) for row in points.get("launch", ())}
    if "kernel_floor" in single:
        curve = replace(curve, kernel_floor_s=single["kernel_floor"])
    gemm = {dtype: _gemm(points, curve, dtype, peaks[dtype]) for dtype in peaks if _of(points, "gemm", dtype=dtype)}
    curve = replace(curve, attention_peak=peaks.get("bf16", peaks.get("fp32", curve.attention_peak)))
    sides = ("forward", "backward")
    flash = {side: _attention(points, curve, side) for side in sides if _of(points, "attention", **{"pass": side})}
    memory = _memory(points, bandwidth)
    return replace(
        head,
        peak_flops=peaks,
        memory_bandwidth=bandwidth if memory else 0.0,
        kernel_floor_s=single.get("kernel_floor", 0.0),
        gemm=gemm,
        attention={"flash": flash} if flash else {},
        memory=memory,
        host=HostMeasurement(seconds_per_op=single["host"]) if "host" in single else head.host,
        measured={kind: tuple(rows) for kind, rows in points.items() if rows},
    )


def _of(points: Points, kind: str, **wanted: str) -> list[Point]:
    return [row for row in points.get(kind, ()) if all(row.get(key) == value for key, value in wanted.items())]


def _column(rows: Iterable[Point], name: str) -> Floats:
    return np.array([float(row[name]) for row in rows])


def products(rows: Sequence[Point]) -> Products:
    return Products(*(_column(rows, name) for name in ("m", "n", "k", "seconds")))


def _peaks(points: Points, gpu: Gpu | None) -> dict[str, float]:
    dtypes = {str(row["dtype"]) for row in points.get("gemm", ())}
    found = {}
    for dtype in sorted(dtypes):
        p = products(_of(points, "gemm", dtype=dtype))
        found[dtype] = gpu.peak(dtype) if gpu is not None else UNKNOWN_PEAK * float(np.max(p.flops / p.seconds))
    if points.get("attention") and not {"bf16", "fp32"} & found.keys():
        rows = points["attention"]
        best = UNKNOWN_PEAK * float(np.max(_column(rows, "flops") / _column(rows, "seconds")))
        found["bf16"] = gpu.peak("bf16") if gpu is not None else best
    return found


def _best_stream(points: Points) -> float:
    rates = [float(row["bytes"]) / float(row["seconds"]) for row in points.get("memory", ())]
    return max(rates, default=NOT_BINDING)


def _stranger(name: str, peaks: dict[str, float], bandwidth: float) -> Gpu:
    """A device the catalog does not know: only its peak and bandwidth matter to a curve."""
    best = max(peaks.values(), default=1e9)
    return Gpu(
        name=name, vendor="", architecture="", memory_bytes=1.0, memory_bandwidth=bandwidth,
        peak_flops={"bf16": best, **peaks}, sms=1, l2_bytes=0.0, shared_bytes_per_sm=0.0, fp32_cores=1,
        base_clock_hz=1e9, boost_clock_hz=1e9, power_watts=1.0, pcie_bandwidth=1.0,
    )  # fmt: skip


def _plain(curve: Curve) -> Curve:
    """A curve that starts from nothing: the shipped ramps are those of GPUs."""
    flat = AttentionLaw(e_max=0.5, seq0=0.0, dim0=0.0, work0=0.0)
    gemm = {dtype: replace(law, k0=0.0, wave=0.0) for dtype, law in curve.gemm.items()}
    return replace(curve, gemm=gemm, attention={"flash": {"forward": flat, "backward": flat}})


def _gemm(points: Points, curve: Curve, dtype: str, peak: float) -> GemmConstants:
    p = products(_of(points, "gemm", dtype=dtype))
    law = replace(curve.gemm_law(dtype), peak=peak, sustained=1.0)
    curve = replace(curve, gemm={**curve.gemm, dtype: law})
    free = ["e_max", "memory_efficiency", "wave", "k0"] if len(p.m) >= WHOLE_FIT else ["e_max"]
    found = fit_gemm(p, curve, dtype, free, prior=PRIOR)
    burst = {str(row["what"]): float(row["seconds"]) for row in points.get("clock", ()) if row["dtype"] == dtype}
    ratio = burst["burst"] / burst["hot"] if {"burst", "hot"} <= burst.keys() else 1.0
    # the sweep ran on a warm chip: what it reached is e_max times sustained
    hot = found["e_max"]
    cool = min(hot / min(max(ratio, 0.5), 1.0), 1.0)
    constants = {"memory_efficiency": law.memory_efficiency, "wave": law.wave, "k0": law.k0, "power": law.power} | found
    return GemmConstants(**(constants | {"e_max": cool, "sustained": hot / cool}))


def _attention(points: Points, curve: Curve, side: str) -> AttentionConstants:
    rows = _of(points, "attention", **{"pass": side})
    backward = side == "backward"
    heads = _column(rows, "batch") * _column(rows, "heads")
    p = Attentions(
        _column(rows, "flops"), _column(rows, "seq"), _column(rows, "head_dim"), heads, _column(rows, "seconds")
    )
    start = curve.attention_law("flash", backward)
    if len(rows) >= WHOLE_ATTENTION:
        return AttentionConstants(**asdict(fit_attention(p, curve, backward, start, prior=PRIOR)))
    ratio = float(np.median(np.asarray(attention_seconds(curve, *p[:4], backward=backward)) / p.seconds))
    return AttentionConstants(**(asdict(start) | {"e_max": min(max(start.e_max * ratio, 1e-3), 1.0)}))


def _memory(points: Points, bandwidth: float) -> dict[str, float]:
    shares: dict[str, list[float]] = {}
    rows = points.get("memory", ())
    for op in dict.fromkeys(str(row["op"]) for row in rows):
        rate = _slope([row for row in rows if row["op"] == op])
        shares.setdefault(MEMORY_KINDS[op], []).append(min(max(rate / bandwidth, 1e-3), 1.0))
    return {kind: float(np.mean(found)) for kind, found in shares.items()}


def _slope(rows: Sequence[Point]) -> float:
    """bytes/s between the smallest and the largest size; over the largest alone where noise is larger than that."""
    key: Callable[[Point], float] = lambda row: float(row["bytes"])  # noqa: E731
    small, large = min(rows, key=key), max(rows, key=key)
    whole = key(large) / float(large["seconds"])
    span = float(large["seconds"]) - float(small["seconds"])
    if len(rows) < 2 or span <= 0.2 * float(large["seconds"]):
        return whole
    return min((key(large) - key(small)) / span, 2.0 * whole)
