"""Error feedback and Top-K of every block in one pass: 8 bytes read and 4.04 written for each number at 1 %.

A block stays in registers. The K-th largest bf16 size is searched downwards from the largest, first in widening steps,
then by halves, and where more are equal than there is room for, so is the place up to which they go: counting is all
that a step costs. What was chosen becomes one bit a number, and only the words of those bits are gone through.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from shardwise.plugins.compressors._contract import Payload, kept
from shardwise.plugins.compressors._fused import FusedKernels, launches
from shardwise.plugins.compressors._fused._by import by


@triton.jit
def _count(chosen: tl.tensor) -> tl.tensor:
    return tl.sum(chosen.to(tl.int32), axis=0)


@triton.jit
def _set_bits(word: tl.tensor) -> tl.tensor:
    word -= (word >> 1) & 0x55555555
    word = (word & 0x33333333) + ((word >> 2) & 0x33333333)
    return (((word + (word >> 4)) & 0x0F0F0F0F) * 0x01010101) >> 24


@triton.jit
def _rounded(p: tl.tensor) -> tl.tensor:
    """The bits of |p| as bf16."""
    size = tl.minimum(p.to(tl.int32, bitcast=True) & 0x7FFFFFFF, 0x7FC00000)
    return (size + 0x7FFF + ((size >> 16) & 1)) >> 16


@triton.jit
def _chosen(
    size: tl.tensor, place: tl.tensor, KEPT: tl.constexpr, BLOCK: tl.constexpr, SPAN: tl.constexpr
) -> tl.tensor:
    # too few reach `high`, enough reach `low`
    high = tl.max(size, axis=0) + 1
    above = 0
    span = SPAN
    low = tl.maximum(high - span, 0)
    enough = _count(size >= low)
    while enough < KEPT:
        high, above = low, enough
        span = span * 4
        low = tl.maximum(low - span, 0)
        enough = _count(size >= low)
    while (high - low > 1) & (enough > KEPT):
        middle = (low + high) >> 1
        count = _count(size >= middle)
        if count < KEPT:
            high, above = middle, count
        else:
            low, enough = middle, count
    # of those equal to `low` the first ones, as many as there is room for
    end = BLOCK
    if enough > KEPT:
        start, stop = 0, BLOCK
        count = enough - above
        while count != KEPT - above:
            end = (start + stop) >> 1
            count = _count((size == low) & (place < end))
            if count < KEPT - above:
                start = end
            else:
                stop = end
    return (size > low) | ((size == low) & (place < end))


@triton.jit
def _write_chosen(
    row: tl.tensor, held: tl.tensor, out: tl.tensor, words: tl.tensor, left: tl.tensor, here: tl.tensor,
    TRACK: tl.constexpr, BLOCK: tl.constexpr,
) -> None:  # fmt: skip
    """The chosen, by the lowest bit of every word, then the next; few words have more than one or two."""
    count = _set_bits(left)
    words += tl.cumsum(count, axis=0) - count
    start = tl.arange(0, BLOCK // 32) * 32
    most, turn = tl.max(count, axis=0), 0
    while turn < most:
        some = turn < count
        lowest = left & -left
        left -= lowest
        at = start + ((lowest.to(tl.float32).to(tl.int32, bitcast=True) >> 23) & 0xFF) - 127
        known = some & (at < here)
        x = tl.load(row + at, mask=known, other=0.0)
        h = tl.load(held + at, mask=known, other=0.0)
        p = x - h if TRACK else h + x
        size = _rounded(p)
        value = tl.where((p < 0) & (size > 0), size | 0x8000, size) << 16
        tl.store(words + turn, value | at, mask=some)
        said = value.to(tl.float32, bitcast=True)
        tl.store(out + at, h + said if TRACK else p - said, mask=known)
        turn += 1


@triton.jit
def _encode(
    row: tl.tensor, held: tl.tensor, out: tl.tensor, words: tl.tensor, first: tl.tensor, d: tl.tensor,
    TRACK: tl.constexpr, KEPT: tl.constexpr, BLOCK: tl.constexpr, SPAN: tl.constexpr, TAIL: tl.constexpr,
) -> None:  # fmt: skip
    block = tl.program_id(0).to(tl.int64) + first
    row += block * BLOCK
    held += block * BLOCK
    out += block * BLOCK
    here = (d - block * BLOCK).to(tl.int32) if TAIL else BLOCK
    place = tl.arange(0, BLOCK)
    x = tl.load(row + place, mask=place < here, other=0.0)
    h = tl.load(held + place, mask=place < here, other=0.0)
    p = x - h if TRACK else h + x
    chosen = _chosen(_rounded(p), place, KEPT, BLOCK, SPAN)
    tl.store(out + place, h + 0.0 if TRACK else p, mask=place < here)

    bits = tl.reshape(chosen.to(tl.int32), (BLOCK // 32, 32)) << tl.arange(0, 32)[None, :]
    tl.debug_barrier()  # what is chosen is written after all that is not
    _write_chosen(row, held, out, words + block * KEPT, tl.sum(bits, axis=1), here, TRACK, BLOCK)


@triton.jit
def _mean(
    words: tl.tensor, out: tl.tensor, d: tl.tensor, row_words: tl.tensor, first: tl.tensor,
    N: tl.constexpr, KEPT: tl.constexpr, BLOCK: tl.constexpr, LANES: tl.constexpr, TAIL: tl.constexpr,
) -> None:  # fmt: skip
    block = tl.program_id(0).to(tl.int64) + first
    here = (d - block * BLOCK).to(tl.int32) if TAIL else BLOCK
    place = tl.arange(0, BLOCK)
    out += block * BLOCK
    words += block * KEPT
    tl.store(out + place, tl.zeros((BLOCK,), tl.float32), mask=place < here)
    lane = tl.arange(0, LANES)
    for _ in range(N):
        tl.debug_barrier()  # what the others of this program wrote before is read now
        word = tl.load(words + lane, mask=lane < KEPT, other=0)
        at = word & 0xFFFF
        known = (lane < KEPT) & (at < here)
        value = (word & -0x10000).to(tl.float32, bitcast=True)
        tl.store(out + at, tl.load(out + at, mask=known, other=0.0) + value, mask=known)
        words += row_words
    if N > 1:
        tl.debug_barrier()
        total = tl.load(out + place, mask=place < here, other=0.0)
        tl.store(out + place, by(total, N), mask=place < here)


@dataclass(frozen=True)
class BlockTopKKernels(FusedKernels):
    block: int
    ratio: float
    warps: int = 4
    span: int = 128
    """first step of the search below the largest, in bf16 numbers; 128 halve a size"""

    def encoded(self, row: Tensor, held: Tensor, out: Tensor, *, track: bool) -> Payload:
        d = row.numel()
        count = triton.cdiv(d, self.block)
        words = torch.empty((count, kept(self.ratio, min(self.block, d))), dtype=torch.int32, device=row.device)
        for first, programs, tail in launches(d, self.block):
            _encode[(programs,)](
                row, held, out, words, first, d, TRACK=track, KEPT=words.shape[1], BLOCK=self.block, SPAN=self.span,
                TAIL=tail, num_warps=self.warps, enable_fp_fusion=False,
            )  # fmt: skip
        return (words,)

    def mean(self, payloads: Sequence[Payload], d: int) -> Tensor:
        words = torch.stack([payload[0] for payload in payloads])
        out = torch.empty(d, device=words.device)
        for first, programs, tail in launches(d, self.block):
            _mean[(programs,)](
                words, out, d, words[0].numel(), first, N=len(payloads), KEPT=words.shape[2], BLOCK=self.block,
                LANES=triton.next_power_of_2(words.shape[2]), TAIL=tail, enable_fp_fusion=False,
            )  # fmt: skip
        return out
