"""Seconds of the kernels of a training step on one GPU. Scalars or numpy arrays, few operations each.

GEMM of m x k by k x n, F = peak · e_max · (1 - (1 - sustained) · duty²), p = 2 or 4:

    t = floor + cast + (compute^p + memory^p)^(1/p)
    compute = 2 · (m·n + wave) · (k + k0) / F
    memory  = (bytes of both operands and the result) / (bandwidth · efficiency)

It is smooth, grows with each of m, n and k, and never beats the peak. Tiles and waves of tiles, each counted, are no
nearer to kernels of Hopper and Blackwell that were left out of the fit. The host's launch cost is not here: a
caller who runs kernels one by one from Python adds its own.
"""

from typing import cast

import numpy as np

from shardwise.cost.curve import Curve, Numbers, curve_of

__all__ = [
    "Curve",
    "attention_seconds",
    "curve_of",
    "factoring_seconds",
    "gemm_seconds",
    "memory_seconds",
    "plain_attention_seconds",
]

SCORE_BYTES = {"fused": (9.0, 11.0), "compiled": (14.9, 17.4), "separate": (42.1, 38.4)}
"""Bytes moved for each score of 16 bits between the two products, forward and backward. Fused: scale-mask-softmax reads
and writes, dropout reads, writes and keeps a byte of mask; backward dropout the same, softmax reads 2, writes 1. The
others as timed on an H200, medians over sequences of 2,048 to 8,192 (evidence/timed/eager-attention-h200.jsonl):
Hugging Face's operations compiled, and they and nanoGPT's one by one"""


QR_COLUMN_S, QR_BYTES = 3.16e-6, 4665.0
"""of a column whatever the rate, and moved for each element: every column passes over a panel"""
EIGEN_COLUMN_S, EIGEN_SHARE = 9.52e-6, 0.19
"""the same, and of the fp32 peak"""


def gemm_seconds(
    curve: Curve,
    m: Numbers,
    n: Numbers,
    k: Numbers,
    dtype: str = "bf16",
    *,
    batch: Numbers | None = None,
    duty: Numbers = 1.0,
    wgrad: bool = False,
    quantise: bool = True,
) -> Numbers:
    """One product, or `batch` equal ones in one kernel.

    `duty`: share of the time in which matrix units work, 0 in a short burst, 1 in the closed form; `wgrad` is a
    weight gradient that accumulates into fp32; `quantise` counts the pass that rounds the left operand (fp8, fp4).
    """
    law = curve.gemm_law(dtype)
    rate = law.peak * law.e_max * law.level(duty) / (law.wgrad_fp32 if wgrad else 1.0)
    per_byte = 1.0 / (curve.bandwidth * law.memory_efficiency)
    area = m * n
    edges = (m + n) * k
    if batch is not None:
        area = area * batch
        edges = edges * batch
    squared = (area + law.wave) * (k * (2.0 / rate) + law.k0 * (2.0 / rate))
    moved = edges * (law.element_bytes * per_byte) + area * (law.output_bytes * per_byte)
    # In place: on large arrays the time goes into fresh memory, not into arithmetic.
    squared *= squared
    moved *= moved
    if law.power == 4.0:
        squared *= squared
        moved *= moved
    squared += moved
    seconds = np.sqrt(squared)
    if law.power == 4.0:
        seconds = np.sqrt(seconds)
    seconds += curve.kernel_floor_s
    if quantise and law.cast_bytes:
        seconds = seconds + rounding_seconds(curve, m * k if batch is None else m * k * batch, dtype)
    return cast(Numbers, seconds)


def factoring_seconds(curve: Curve, kind: str, side: float) -> float:
    """QR, or eigenvectors of a symmetric matrix, in fp32 by cuSOLVER: column by column, as timed on an H200
    (evidence/fit_factors.py)."""
    if kind == "qr":
        return side * QR_COLUMN_S + side**2 * QR_BYTES / curve.bandwidth
    return side * EIGEN_COLUMN_S + 9.0 * side**3 / (EIGEN_SHARE * curve.gemm_law("fp32").peak)


def rounding_seconds(curve: Curve, elements: Numbers, dtype: str) -> Numbers:
    """The pass that rounds a product's operand; none where the chip computes in 16 bits or more."""
    moved = curve.gemm_law(dtype).cast_bytes
    return elements * (moved / curve.bandwidth) + (curve.kernel_floor_s if moved else 0.0)


def attention_seconds(
    curve: Curve,
    flops: Numbers,
    seq: Numbers,
    head_dim: Numbers,
    batch_heads: Numbers,
    *,
    backward: bool = False,
    kernel: str = "flash",
) -> Numbers:
    """Flash attention doing `flops` useful FLOP (causal: half the square; backward: 2.5 times forward).

    `seq` is the length of keys, `batch_heads` the micro-batch times the query heads on this GPU.
    """
    law = curve.attention_law(kernel, backward)
    fill = (1.0 + law.seq0 / seq) * (1.0 + law.dim0 / head_dim) * (1.0 + law.work0 / (batch_heads * seq))
    return flops * fill / (curve.attention_peak * law.e_max) + curve.kernel_floor_s


def sparse_attention_seconds(
    curve: Curve, flops: Numbers, keys: Numbers, head_dim: Numbers, heads: Numbers, *, backward: bool = False
) -> Numbers:
    """Attention of queries that each gather `keys` of their own: the heads of one query are the rows of a tile, and
    gradients of gathered keys are added up one by one."""
    law = curve.attention_law("sparse", backward)
    fill = (1.0 + law.seq0 / keys) * (1.0 + law.dim0 / head_dim) * (1.0 + law.work0 / heads)
    return flops * fill / (curve.attention_peak * law.e_max) + curve.kernel_floor_s


def plain_attention_seconds(
    curve: Curve,
    seq: Numbers,
    head_dim: Numbers,
    batch_heads: Numbers,
    *,
    keys: Numbers | None = None,
    backward: bool = False,
    scores: str = "fused",
    slowed: float = 1.0,
) -> Numbers:
    """Attention that writes its scores: batched products and softmax passes over the full square. `slowed`: time of the
    products over that of heads whose rows a tensor core loads well."""
    keys = seq if keys is None else keys
    first = gemm_seconds(curve, seq, keys, head_dim, batch=batch_heads)
    second = gemm_seconds(curve, seq, head_dim, keys, batch=batch_heads)
    products = 2.0 if backward else 1.0
    passes = memory_seconds(curve, batch_heads * seq * keys * SCORE_BYTES[scores][backward], kernels=2)
    return (first + second) * (products * slowed) + passes


def memory_seconds(curve: Curve, moved: Numbers, kind: str = "stream", *, kernels: Numbers = 1.0) -> Numbers:
    """Element-wise passes that move `moved` bytes in all, in `kernels` kernels.

    Kinds: stream (copy, add), norm, activation, optimizer (fused AdamW).
    """
    return moved * (1.0 / (curve.bandwidth * curve.memory_efficiency(kind))) + kernels * curve.kernel_floor_s
