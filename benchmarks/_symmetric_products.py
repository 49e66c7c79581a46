"""Products whose result is symmetric, computed by half: what Newton-Schulz would take with them (Triton)."""

from typing import Any

import torch
import triton
import triton.language as tl

from shardwise.plugins.optimizers._steps import COEFFICIENTS, TINY

TILE, DEEP = 128, 64


@triton.jit
def _tiles(
    x: tl.tensor, added: tl.tensor, out: tl.tensor, pairs: tl.tensor, m: tl.tensor, n: tl.tensor, stride: tl.tensor,
    alpha: tl.tensor, beta: tl.tensor, ADDS: tl.constexpr, T: tl.constexpr, D: tl.constexpr,
) -> None:  # fmt: skip
    top, left = tl.load(pairs + 2 * tl.program_id(0)), tl.load(pairs + 2 * tl.program_id(0) + 1)
    rows, columns, deep = top * T + tl.arange(0, T), left * T + tl.arange(0, T), tl.arange(0, D)
    total = tl.zeros((T, T), tl.float32)
    for start in range(0, n, D):
        at = start + deep
        a = tl.load(x + rows[:, None] * stride + at[None, :], (rows[:, None] < m) & (at[None, :] < n), 0.0)
        b = tl.load(x + columns[:, None] * stride + at[None, :], (columns[:, None] < m) & (at[None, :] < n), 0.0)
        total = tl.dot(a, tl.trans(b), total)
    inside = (rows[:, None] < m) & (columns[None, :] < m)
    total = total * alpha
    if ADDS:
        total += beta * tl.load(added + rows[:, None] * m + columns[None, :], inside, 0.0).to(tl.float32)
    value = total.to(tl.bfloat16)
    tl.store(out + rows[:, None] * m + columns[None, :], value, inside)
    tl.store(out + columns[:, None] * m + rows[None, :], tl.trans(value), tl.trans(inside))


_PAIRS: dict[int, Any] = {}


def symmetric(x: Any, added: Any = None, alpha: float = 1.0, beta: float = 0.0) -> Any:
    """alpha x x' + beta added, in bf16; x contiguous by rows."""
    m, n = x.shape
    tiles = -(-m // TILE)
    if tiles not in _PAIRS:
        every = [(i, j) for i in range(tiles) for j in range(i + 1)]
        _PAIRS[tiles] = torch.tensor(every, dtype=torch.int32, device=x.device).flatten()
    out = torch.empty(m, m, dtype=x.dtype, device=x.device)
    grid = (tiles * (tiles + 1) // 2,)
    _tiles[grid](
        x, out if added is None else added, out, _PAIRS[tiles], m, n, x.stride(0), alpha, beta, added is not None,
        TILE, DEEP, num_warps=8, num_stages=4,
    )  # fmt: skip
    return out


def orthogonalized_by_halves(matrix: Any, steps: int) -> Any:
    a, b, c = COEFFICIENTS
    tall = matrix.shape[0] > matrix.shape[1]
    x = matrix.bfloat16()
    x = x.T.contiguous() if tall else x
    x = x / x.norm().clamp(min=TINY)
    for _ in range(steps):
        gram = symmetric(x)
        x = torch.addmm(x, symmetric(gram, gram, c, b), x, beta=a)
    return x.T if tall else x
