"""Error feedback, sign and packing in one pass: 8 bytes read and 4.13 written for each number."""

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
    row: tl.tensor, held: tl.tensor, out: tl.tensor, words: tl.tensor, scales: tl.tensor, first: tl.tensor,
    d: tl.tensor, TRACK: tl.constexpr, BLOCK: tl.constexpr, TAIL: tl.constexpr,
) -> None:  # fmt: skip
    block = tl.program_id(0).to(tl.int64) + first
    place = tl.arange(0, BLOCK)
    here = (d - block * BLOCK).to(tl.int32) if TAIL else BLOCK
    inside = place < here
    at = block * BLOCK + place
    x = tl.load(row + at, mask=inside, other=0.0)
    h = tl.load(held + at, mask=inside, other=0.0)
    p = x - h if TRACK else h + x

    plus = (p >= 0) & inside
    bits = tl.reshape(plus.to(tl.int32), (BLOCK // 32, 32)) << tl.arange(0, 32)[None, :]
    word = tl.arange(0, BLOCK // 32)
    tl.store(words + block * (BLOCK // 32) + word, tl.sum(bits, axis=1), mask=word * 32 < here)

    # the fixed point of _sizes.mean_sizes, on the bits
    size = p.to(tl.int32, bitcast=True) & 0x7FFFFFFF
    exponent = tl.maximum(tl.max(size, axis=0) >> 23, 1)
    own = tl.maximum(size >> 23, 1)
    digits = (size - (own << 23) + (1 << 23)) << 7
    total = tl.sum((digits >> tl.minimum(exponent - own, 31)).to(tl.int64), axis=0)
    mean = tl.div_rn(total.to(tl.float32), tl.zeros_like(total).to(tl.float32) + here) * (2.0**-30)
    scale = mean * (exponent << 23).to(tl.float32, bitcast=True)
    tl.store(scales + block, scale)

    said = tl.where(plus, scale, scale * -1.0)  # Triton's minus is 0 - scale, which loses the sign of zero
    tl.store(out + at, h + said if TRACK else p - said, mask=inside)


@triton.jit
def _mean(
    words: tl.tensor, scales: tl.tensor, out: tl.tensor, d: tl.tensor, row_words: tl.tensor, row_scales: tl.tensor,
    first: tl.tensor, N: tl.constexpr, BLOCK: tl.constexpr, SPAN: tl.constexpr, TAIL: tl.constexpr,
) -> None:  # fmt: skip
    start = (tl.program_id(0).to(tl.int64) + first) * SPAN
    here = (d - start).to(tl.int32) if TAIL else SPAN
    four = tl.arange(0, SPAN // 4)  # a thread writes four numbers at once, so it reads the word of those
    known = four * 4 < here
    words += start // 32 + four // 8
    scales += start // BLOCK
    bit = ((four % 8) * 4)[:, None] + tl.arange(0, 4)[None, :]
    word, scale = tl.load(words, mask=known, other=0), tl.load(scales)
    total = tl.where(((word[:, None] >> bit) & 1) == 1, scale, scale * -1.0)
    for _ in tl.range(1, N, loop_unroll_factor=4):
        words += row_words
        scales += row_scales
        word, scale = tl.load(words, mask=known, other=0), tl.load(scales)
        total += tl.where(((word[:, None] >> bit) & 1) == 1, scale, scale * -1.0)
    place = four[:, None] * 4 + tl.arange(0, 4)[None, :]
    tl.store(out + start + place, by(total, N), mask=place < here)


@dataclass(frozen=True)
class SignKernels(FusedKernels):
    block: int
    warps: int = 8
    span: int = 2048
    """numbers decoded by one program"""

    def encoded(self, row: Tensor, held: Tensor, out: Tensor, *, track: bool) -> Payload:
        d = row.numel()
        count = triton.cdiv(d, self.block)
        words = torch.empty(triton.cdiv(d, 32), dtype=torch.int32, device=row.device)
        scales = torch.empty(count, device=row.device)
        for first, programs, tail in launches(d, self.block):
            _encode[(programs,)](
                row, held, out, words, scales, first, d, TRACK=track, BLOCK=self.block, TAIL=tail,
                num_warps=self.warps, enable_fp_fusion=False,
            )  # fmt: skip
        return words, scales

    def mean(self, payloads: Sequence[Payload], d: int) -> Tensor:
        words, scales = (torch.stack(part) for part in zip(*payloads, strict=True))
        out = torch.empty(d, device=words.device)
        span = min(self.span, self.block)
        for first, programs, tail in launches(d, span):
            _mean[(programs,)](
                words, scales, out, d, words.shape[1], scales.shape[1], first, N=len(payloads),
                BLOCK=self.block, SPAN=span, TAIL=tail, enable_fp_fusion=False,
            )  # fmt: skip
        return out
