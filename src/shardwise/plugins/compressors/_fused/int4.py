"""Error feedback and int4 in one pass: 8 bytes read and 4.53 written for each number."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from shardwise.plugins.compressors._contract import Payload
from shardwise.plugins.compressors._fused import FusedKernels, launches
from shardwise.plugins.compressors._fused._by import by


@triton.jit
def _encode(
    row: tl.tensor, held: tl.tensor, out: tl.tensor, words: tl.tensor, steps: tl.tensor, first: tl.tensor,
    d: tl.tensor, TRACK: tl.constexpr, GROUP: tl.constexpr, ROWS: tl.constexpr, TAIL: tl.constexpr,
) -> None:  # fmt: skip
    start = (tl.program_id(0).to(tl.int64) + first) * (ROWS * GROUP)
    here = (d - start).to(tl.int32) if TAIL else ROWS * GROUP
    group = tl.arange(0, ROWS)
    place = group[:, None] * GROUP + tl.arange(0, GROUP)[None, :]
    inside = place < here
    at = start + place
    x = tl.load(row + at, mask=inside, other=0.0)
    h = tl.load(held + at, mask=inside, other=0.0)
    p = x - h if TRACK else h + x

    size = tl.max(p.to(tl.int32, bitcast=True) & 0x7FFFFFFF, axis=1)
    step = tl.minimum(size, 0x7F800000).to(tl.float32, bitcast=True) * (1.0 / 7.0)
    usable = (step >= 2.0**-126) & (step < float("inf"))
    inverse = tl.where(usable, tl.div_rn(tl.full((ROWS,), 1.0, tl.float32), tl.where(usable, step, 1.0)), 0.0)
    tl.store(steps + start // GROUP + group, step, mask=group * GROUP < here)

    # added to 1.5 * 2^23 a small number is rounded to the nearest whole, ties to even, and its low bits are the code
    shifted = tl.where(usable[:, None], p * inverse[:, None], 0.0) + 12582912.0
    code = tl.reshape(shifted.to(tl.int32, bitcast=True) & 15, (ROWS * GROUP // 8, 8))
    word = tl.sum(code << (tl.arange(0, 8) * 4)[None, :], axis=1)
    word_at = tl.arange(0, ROWS * GROUP // 8)
    tl.store(words + start // 8 + word_at, word, mask=word_at * 8 < here)

    said = (shifted - 12582912.0) * step[:, None]
    tl.store(out + at, h + said if TRACK else p - said, mask=inside)


@triton.jit
def _mean(
    words: tl.tensor, steps: tl.tensor, out: tl.tensor, d: tl.tensor, row_words: tl.tensor, row_steps: tl.tensor,
    first: tl.tensor, N: tl.constexpr, GROUP: tl.constexpr, SPAN: tl.constexpr, TAIL: tl.constexpr,
) -> None:  # fmt: skip
    start = (tl.program_id(0).to(tl.int64) + first) * SPAN
    here = (d - start).to(tl.int32) if TAIL else SPAN
    four = tl.arange(0, SPAN // 4)  # a thread writes four numbers at once, so it reads the word of those
    known = four * 4 < here
    words += start // 8 + four // 2
    steps += start // GROUP + four // (GROUP // 4)
    shift = 28 - (four % 2 * 16)[:, None] - tl.arange(0, 4)[None, :] * 4
    word, step = tl.load(words, mask=known, other=0), tl.load(steps, mask=known, other=0.0)
    total = ((word[:, None] << shift) >> 28).to(tl.float32) * step[:, None]
    for _ in tl.range(1, N, loop_unroll_factor=4):
        words += row_words
        steps += row_steps
        word, step = tl.load(words, mask=known, other=0), tl.load(steps, mask=known, other=0.0)
        total += ((word[:, None] << shift) >> 28).to(tl.float32) * step[:, None]
    place = four[:, None] * 4 + tl.arange(0, 4)[None, :]
    tl.store(out + start + place, by(total, N), mask=place < here)


@dataclass(frozen=True)
class Int4Kernels(FusedKernels):
    group: int
    rows: int = 8
    """groups encoded by one program"""
    warps: int = 4
    span: int = 1024
    """numbers decoded by one program"""

    def encoded(self, row: Tensor, held: Tensor, out: Tensor, *, track: bool) -> Payload:
        d = row.numel()
        words = torch.empty(triton.cdiv(d, 8), dtype=torch.int32, device=row.device)
        steps = torch.empty(triton.cdiv(d, self.group), device=row.device)
        for first, programs, tail in launches(d, self.rows * self.group):
            _encode[(programs,)](
                row, held, out, words, steps, first, d, TRACK=track, GROUP=self.group, ROWS=self.rows, TAIL=tail,
                num_warps=self.warps, enable_fp_fusion=False,
            )  # fmt: skip
        return words, steps

    def mean(self, payloads: Sequence[Payload], d: int) -> Tensor:
        words, steps = (torch.stack(part) for part in zip(*payloads, strict=True))
        out = torch.empty(d, device=words.device)
        for first, programs, tail in launches(d, self.span):
            _mean[(programs,)](
                words, steps, out, d, words.shape[1], steps.shape[1], first, N=len(payloads),
                GROUP=self.group, SPAN=self.span, TAIL=tail, enable_fp_fusion=False,
            )  # fmt: skip
        return out
