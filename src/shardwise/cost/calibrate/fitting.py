"""Constants of the kernel laws from measured times: a small bounded least-squares fit, in numpy alone.

The error is that of the logarithm of time, so that a short kernel counts as much as a long one, and it is robust: a
point that is far off pulls little.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace
from numpy.typing import ArrayLike, NDArray

from shardwise.arrays import Floats
from shardwise.cost.curve import AttentionLaw, Curve, GemmLaw
from shardwise.cost.gpu import attention_seconds, gemm_seconds

Residual = Callable[[Floats], Floats]

ROUNDS = 200
STEP = 1e-5
"""relative step of the numeric derivative"""
GEMM_BOUNDS = {
    "e_max": (0.02, 1.0), "memory_efficiency": (0.05, 0.95), "cast_bytes": (0.0, 30.0), "wave": (0.0, 2e7),
    "k0": (0.0, 2000.0), "kernel_floor_s": (0.0, 8e-5),
}  # fmt: skip
GEMM_SCALE = {
    "e_max": 0.8, "memory_efficiency": 0.85, "cast_bytes": 6.0, "wave": 3e5, "k0": 50.0, "kernel_floor_s": 3e-6,
}  # fmt: skip
ATTENTION_BOUNDS = {"e_max": (0.02, 1.0), "seq0": (0.0, 3000.0), "dim0": (0.0, 100.0), "work0": (0.0, 3e5)}
ATTENTION_SCALE = {"e_max": 0.8, "seq0": 300.0, "dim0": 20.0, "work0": 1e4}


class Products(NamedTuple):
    """Measured matrix products: [m, k] x [k, n] took `seconds`."""

    m: Floats
    n: Floats
    k: Floats
    seconds: Floats

    @property
    def flops(self) -> Floats:
        return 2 * self.m * self.n * self.k

    def where(self, keep: NDArray[np.bool_]) -> "Products":
        return Products(*(column[keep] for column in self))

    @property
    def large(self) -> NDArray[np.bool_]:
        return (self.flops >= 16e9) & (self.m >= 1024)


class Attentions(NamedTuple):
    """Measured flash attention, one pass: `flops` useful ones took `seconds`."""

    flops: Floats
    seq: Floats
    head_dim: Floats
    batch_heads: Floats
    seconds: Floats


def least_squares(
    residual: Residual, start: ArrayLike, low: ArrayLike, high: ArrayLike, scale: ArrayLike, *,
    robust: float | None = 0.05,
) -> Floats:  # fmt: skip
    """Levenberg-Marquardt inside bounds; `robust` is the size from which a residual counts linearly."""
    unit = np.asarray(scale, dtype=np.float64)
    least, most = np.asarray(low) / unit, np.asarray(high) / unit
    x = np.clip(np.asarray(start, dtype=np.float64) / unit, least, most)
    damping, found = 1e-3, residual(x * unit)
    cost = _loss(found, robust)
    for _ in range(ROUNDS):
        slopes = _slopes(residual, x, found, unit, most)
        weight = np.ones_like(found) if robust is None else 1 / np.sqrt(1 + (found / robust) ** 2)
        pull = slopes.T @ (weight * found)
        # a constant at its bound that is pushed outwards stays there
        free = ~(((x <= least) & (pull > 0)) | ((x >= most) & (pull < 0)))
        if not free.any():
            break
        normal = slopes[:, free].T @ (weight[:, None] * slopes[:, free])
        diagonal = np.diag(np.maximum(np.diag(normal), 1e-12))
        step = np.zeros_like(x)
        step[free] = np.linalg.solve(normal + damping * diagonal, -pull[free])
        trial = np.clip(x + step, least, most)
        new = residual(trial * unit)
        loss = _loss(new, robust)
        if loss < cost:
            done = cost - loss < 1e-12 * max(cost, 1e-12)
            x, found, cost, damping = trial, new, loss, max(damping / 3, 1e-9)
            if done:
                break
        else:
            damping *= 4
            if damping > 1e12:
                break
    return np.asarray(x * unit)


def _loss(found: Floats, robust: float | None) -> float:
    if not np.isfinite(found).all():
        return np.inf
    if robust is None:
        return float(np.sum(found**2))
    return float(2 * robust**2 * np.sum(np.sqrt(1 + (found / robust) ** 2) - 1))


def _slopes(residual: Residual, x: Floats, found: Floats, unit: Floats, most: Floats) -> Floats:
    columns = []
    for i in range(len(x)):
        step = STEP * max(abs(float(x[i])), 0.1)
        step = -step if x[i] + step > most[i] else step
        moved = x.copy()
        moved[i] += step
        columns.append((residual(moved * unit) - found) / step)
    return np.stack(columns, axis=1)


def with_gemm(curve: Curve, dtype: str, constants: dict[str, float]) -> Curve:
    """The curve with these constants of one dtype; `kernel_floor_s` is the curve's own."""
    law: GemmLaw = replace(curve.gemm_law(dtype), **{k: v for k, v in constants.items() if k != "kernel_floor_s"})
    floor = constants.get("kernel_floor_s", curve.kernel_floor_s)
    return replace(curve, gemm={**curve.gemm, dtype: law}, kernel_floor_s=floor)


def fit_gemm(
    points: Products, curve: Curve, dtype: str, free: Sequence[str], *, weight: Floats | float = 1.0, prior: float = 0.0
) -> dict[str, float]:
    """The constants named in `free`; the others stay as the curve has them.

    `prior` holds the constants near the curve's own, against what the points leave open.
    """
    start = np.array([_start(curve, dtype, name) for name in free])
    scale = np.array([GEMM_SCALE[name] for name in free])

    def residual(x: Floats) -> Floats:
        tried = with_gemm(curve, dtype, dict(zip(free, x, strict=True)))
        predicted = gemm_seconds(tried, points.m, points.n, points.k, dtype, duty=0.0)
        return np.concatenate([np.log(predicted / points.seconds) * weight, prior * (x - start) / scale])

    low, high = zip(*(GEMM_BOUNDS[name] for name in free), strict=True)
    found = least_squares(residual, start, low, high, scale)
    return {name: float(value) for name, value in zip(free, found, strict=True)}


def _start(curve: Curve, dtype: str, name: str) -> float:
    if name == "kernel_floor_s":
        return curve.kernel_floor_s
    return float(getattr(curve.gemm_law(dtype), name))


def fit_attention(
    points: Attentions, curve: Curve, backward: bool, start: AttentionLaw, *, prior: float = 0.0
) -> AttentionLaw:
    """The law of one pass of the flash kernel, as shares of the curve's attention peak."""
    names = tuple(ATTENTION_BOUNDS)
    side = "backward" if backward else "forward"
    first = np.array([getattr(start, name) for name in names])
    scale = np.array([ATTENTION_SCALE[name] for name in names])

    def residual(x: Floats) -> Floats:
        law = AttentionLaw(**dict(zip(names, x, strict=True)))
        tried = replace(curve, attention={"flash": {side: law}})
        shape = (points.flops, points.seq, points.head_dim, points.batch_heads)
        predicted = attention_seconds(tried, *shape, backward=backward)
        return np.concatenate([np.log(predicted / points.seconds), prior * (x - first) / scale])

    low, high = zip(*ATTENTION_BOUNDS.values(), strict=True)
    found = least_squares(residual, first, low, high, scale, robust=None)
    return AttentionLaw(**{name: float(value) for name, value in zip(names, found, strict=True)})
