"""Steps over sequences of different lengths: padding, packing, and waiting for the data-parallel rank that has most.

Padded, a micro-batch is as long as its longest sequence. Packed, sequences fill buffers of the job's length, the
longest first and each where it leaves least; all of a buffer is computed, but attention stays inside each sequence, so
that its time follows the sum of squares. Either way the ranks of a step have unequal work and wait for the slowest.
Steps are drawn from the lengths with a fixed seed; what is held follows the longest sequence and stays as it is.
"""

from bisect import bisect_left, insort
from dataclasses import dataclass, replace

import numpy as np
from msgspec import Struct
from msgspec.structs import replace as with_fields
from numpy.typing import NDArray

from shardwise.case import Case
from shardwise.estimate.closed_form import estimate, machine_for
from shardwise.estimate.exposure import recompute_share
from shardwise.estimate.layers import layer_seconds
from shardwise.spec.lengths import DataLengths, Tokens
from shardwise.spec.policy import Policies, Policy
from shardwise.work import work_of
from shardwise.work.ops import LayerWork

Floats = NDArray[np.float64]
ONCE = ("grad_comm", "param_comm", "optimizer", "other")
"""parts of a step that its tokens do not lengthen"""
GRID = (1 / 64, 1 / 32, 1 / 16, 1 / 8, 3 / 16, 1 / 4, 3 / 8, 1 / 2, 5 / 8, 3 / 4, 7 / 8, 1.0)
"""shares of the longest sequence at which a micro-batch is priced; between them its time is taken from a line"""
DRAWN = 2_000_000
"""lengths drawn at most, for as many steps as that gives"""
MOST_STEPS, FEWEST_STEPS = 64, 4
MOST_PACKED = 50_000
"""sequences packed at most"""


class LengthsReport(Struct, frozen=True, kw_only=True):
    name: str
    mean_tokens: float
    median_tokens: float
    longest_tokens: int
    step_tokens: float
    """of the data, in one step"""
    longest_step_s: float
    """if every sequence were as long as the job's"""
    padding: float
    """share of the tokens of padded micro-batches"""
    padded_step_s: float
    padded_waiting: float
    """what the slowest rank of a step takes longer than the mean"""
    filled: float
    """share of packed buffers that is data"""
    sequences_per_buffer: float
    packed_step_s: float
    packed_waiting: float

    @property
    def packing_saves(self) -> float:
        """share of the padded step"""
        return 1.0 - self.packed_step_s / self.padded_step_s


@dataclass(frozen=True)
class _Prices:
    """Seconds of one policy's micro-batch."""

    at: Floats
    """lengths"""
    micro_batch: Floats
    """of as many sequences as it has, all of that length"""
    attention: Floats
    """the attention of one sequence of that length, forward and backward, among others that fill a buffer"""
    whole_attention: float
    """of a micro-batch of sequences of the job's length"""
    once: float


def lengths_report(case: Case, policy: Policy, lengths: DataLengths) -> LengthsReport:
    job, generator = case.job, np.random.default_rng(0)
    prices = _prices(case, policy)
    in_step = job.global_batch
    micro = max(job.global_batch // (policy.dp * policy.micro_batch), 1)
    shape = (policy.dp, micro, policy.micro_batch)
    steps = int(np.clip(DRAWN // int(np.prod(shape)), FEWEST_STEPS, MOST_STEPS))
    drawn = lengths.drawn(steps * int(np.prod(shape)), job.seq, generator).reshape(steps, *shape)
    longest = drawn.max(axis=-1)
    by_rank = np.interp(longest, prices.at, prices.micro_batch).sum(axis=-1)
    slowest, mean = float(by_rank.max(axis=1).mean()), float(by_rank.mean())
    packed = _packed(prices, drawn.ravel()[:MOST_PACKED], policy, in_step, job.seq, generator)
    return LengthsReport(
        name=lengths.name,
        mean_tokens=float(drawn.mean()),
        median_tokens=float(np.median(drawn)),
        longest_tokens=int(drawn.max()),
        step_tokens=in_step * float(drawn.mean()),
        longest_step_s=micro * float(prices.micro_batch[-1]) + prices.once,
        padding=1.0 - float(drawn.sum()) / float(longest.sum() * policy.micro_batch),
        padded_step_s=slowest + prices.once,
        padded_waiting=max(slowest / mean - 1.0, 0.0),
        filled=packed.filled,
        sequences_per_buffer=packed.sequences,
        packed_step_s=packed.step_s,
        packed_waiting=packed.waiting,
    )


@dataclass(frozen=True)
class _Packed:
    filled: float
    sequences: float
    step_s: float
    waiting: float


def _packed(
    prices: _Prices, lengths: Tokens, policy: Policy, in_step: int, seq: int, generator: np.random.Generator
) -> _Packed:
    """As many buffers in a step as its sequences fill on average."""
    per_sequence = np.interp(lengths, prices.at, prices.attention)
    buffer, number = buffers_of(lengths, seq)
    attention = np.bincount(buffer, weights=per_sequence, minlength=number)
    of_rank = in_step * number / len(lengths) / policy.dp
    whole = max(round(of_rank), 1)
    ranks = generator.choice(attention, (MOST_STEPS, policy.dp, whole)).sum(axis=-1)
    slowest, mean = (float(each) / whole * of_rank for each in (ranks.max(axis=1).mean(), ranks.mean()))
    rest = float(prices.micro_batch[-1] - prices.whole_attention) / policy.micro_batch * of_rank
    return _Packed(
        filled=float(lengths.sum()) / (number * seq),
        sequences=len(lengths) / number,
        step_s=rest + slowest + prices.once,
        waiting=max((rest + slowest) / (rest + mean) - 1.0, 0.0),
    )


def buffers_of(lengths: Tokens, seq: int) -> tuple[Tokens, int]:
    """Which buffer of `seq` tokens each sequence goes into, and how many there are: the longest first, each into the
    buffer it leaves least room in."""
    found = np.zeros(len(lengths), dtype=np.int64)
    room: list[tuple[int, int]] = []
    number = 0
    for index in np.argsort(-lengths, kind="stable").tolist():
        length = int(lengths[index])
        at = bisect_left(room, (length, -1))
        left, buffer = room.pop(at) if at < len(room) else (seq, number)
        number += buffer == number
        found[index] = buffer
        if left > length:
            insort(room, (left - length, buffer))
    return found, number


def _prices(case: Case, policy: Policy) -> _Prices:
    one, seq = Policies.of([policy]), case.job.seq
    step = policy.cp * (policy.tp if policy.sp else 1)
    at = sorted({min(max(round(seq * share / step), 1) * step, seq) for share in GRID})
    seconds, attention, once = [], [], 0.0
    for length in at:
        here = replace(case, job=with_fields(case.job, seq=length))
        times = estimate(here, one, every_stage=True).times
        once = sum(float(times.parts[name][0]) for name in ONCE)
        micro = max(case.job.global_batch // (policy.dp * policy.micro_batch), 1)
        seconds.append((float(times.step_s[0]) - once) / micro)
        beside = max(seq // length, 1) * policy.micro_batch
        attention.append(_attention_seconds(here, with_fields(policy, micro_batch=beside)) / beside)
    return _Prices(
        np.array(at, dtype=np.float64), np.array(seconds), np.array(attention),
        attention[-1] * policy.micro_batch, once,
    )  # fmt: skip


def _attention_seconds(case: Case, policy: Policy) -> float:
    """Of a micro-batch on the fullest stage: the attention cores of its layers, with what is recomputed."""
    one = Policies.of([policy])
    work, machine = work_of(case, one, every_stage=True), machine_for(case, one)
    again = recompute_share(work) * (work.layout.policies.recompute == 2)
    by_stage = np.zeros(work.stages.index.shape[1])
    for layer, number in zip(work.kinds, work.stages.kinds, strict=True):
        if layer.attention is not None:
            alone = LayerWork(attention=layer.attention, forward_only=layer.forward_only)
            taken = layer_seconds(alone, work.frames, machine, 0.0)
            by_stage = by_stage + number[0] * float((taken.forward * (1.0 + again) + taken.backward)[0])
    return float(by_stage.max())
