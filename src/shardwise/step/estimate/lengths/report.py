"""What a step takes over sequences as long as the data has them.

Padded, a micro-batch is as long as its longest sequence. Packed, sequences fill buffers of the job's length, with
attention inside each. With dynamic context parallelism (`packing` dynamic) a sequence is shared by as few ranks as have
room for it, instead of all by as many as the longest needs. Steps are drawn with a fixed seed; what is held follows the
longest sequence and stays as it is. In all three ways ranks have unequal work and wait for the slowest.
"""

from dataclasses import dataclass
from functools import cached_property
from math import ceil

import numpy as np
from msgspec import Struct

from shardwise.spec.lengths import PACKINGS, DataLengths, Tokens
from shardwise.spec.policy import Policy
from shardwise.step.estimate.lengths.prices import MicroBatchPrices, micro_batch_prices, once_seconds, token_prices
from shardwise.step.estimate.lengths.waits import Dealt, in_lockstep
from shardwise.step.estimate.lengths.ways import Packed, Spread, group_prices, packed, padded, spread
from shardwise.work.case import Case

DRAWN = 2_000_000
"""lengths drawn at most, for as many steps as that gives"""
MOST_STEPS, FEWEST_STEPS = 64, 4
MOST_PACKED = 50_000
"""sequences packed at most, for as many whole steps as that gives"""


class LengthsReport(Struct, frozen=True, kw_only=True):
    name: str
    mean_tokens: float
    median_tokens: float
    longest_tokens: int
    cut: float
    """share of the sequences that were longer than the job's and lost their end"""
    attended_tokens: float
    """what a token attends to as in sequences that are all so long: the mean of squares over the mean"""
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
    buffers: float
    """of a packed step"""
    packed_step_s: float
    packed_waiting: float
    dynamic_step_s: float
    dynamic_waiting: float
    dynamic_shares: dict[int, float]
    """of the sequences, by the ranks that share one"""

    @property
    def packing_saves(self) -> float:
        """share of the padded step"""
        return 1.0 - self.packed_step_s / self.padded_step_s

    @property
    def dynamic_saves(self) -> float:
        """share of the packed step"""
        return 1.0 - self.dynamic_step_s / self.packed_step_s

    def step_s(self, packing: str) -> float:
        return {"off": self.padded_step_s, "on": self.packed_step_s, "dynamic": self.dynamic_step_s}[packing]

    def waiting(self, packing: str) -> float:
        return {"off": self.padded_waiting, "on": self.packed_waiting, "dynamic": self.dynamic_waiting}[packing]


class DataStep(Struct, frozen=True, kw_only=True):
    """A policy's step over the data, packed as asked."""

    step_s: float
    tokens: float
    """of the data, in one step"""
    waiting: float
    """what the slowest rank of a step takes longer than the mean"""
    data: float
    """share of what is computed that is data; the rest is padding, or the empty end of a buffer"""
    attended_tokens: float
    """what a token attends to as in sequences that are all so long: the mean of squares over the mean"""


@dataclass(frozen=True)
class DrawnSteps:
    """Steps of one policy over lengths that were drawn, with a fixed seed."""

    case: Case
    policy: Policy
    lengths: DataLengths

    @property
    def together(self) -> int:
        """Sequences that all ranks have at once."""
        return self.policy.dp * self.policy.micro_batch

    @property
    def micro(self) -> int:
        return max(self.case.job.global_batch // self.together, 1)

    @property
    def in_step(self) -> int:
        return self.micro * self.together

    @cached_property
    def drawn(self) -> Tokens:
        """(steps, ranks, micro-batches, sequences of one)"""
        number = int(np.clip(DRAWN // self.in_step, FEWEST_STEPS, MOST_STEPS))
        found = self.lengths.drawn(number * self.in_step, self.case.job.seq, np.random.default_rng(0))
        return found.reshape(number, self.policy.dp, self.micro, self.policy.micro_batch)

    @cached_property
    def packed_steps(self) -> list[Tokens]:
        return [each.ravel() for each in self.drawn[: max(MOST_PACKED // self.in_step, 1)]]

    @property
    def full_micro(self) -> int:
        """Micro-batches of a step that its tokens fill."""
        return max(ceil(float(self.drawn.mean()) * self.in_step / (self.together * self.case.job.seq)), 1)

    @cached_property
    def once(self) -> float:
        return once_seconds(self.case, self.policy, self.micro)

    @cached_property
    def alone(self) -> MicroBatchPrices:
        return micro_batch_prices(self.case, self.policy, self.micro)

    @cached_property
    def padded(self) -> Dealt:
        return padded(self.alone, self.drawn, in_lockstep(self.policy))

    @cached_property
    def packed(self) -> Packed:
        prices, order = token_prices(self.case, self.policy, self.full_micro), np.random.default_rng(1)
        return packed(prices, self.packed_steps, self.policy, self.case.job.seq, in_lockstep(self.policy), order)

    @cached_property
    def spread(self) -> Spread:
        groups, ranks = group_prices(self.case, self.policy, self.full_micro), self.policy.dp * self.policy.cp
        return spread(groups, self.packed_steps, ranks, in_lockstep(self.policy))

    @property
    def padding(self) -> float:
        return 1.0 - float(self.drawn.sum()) / float(self.drawn.max(axis=-1).sum() * self.policy.micro_batch)

    @cached_property
    def known(self) -> Tokens:
        """All lengths of a file, or what was drawn from a distribution."""
        counted = np.array(self.lengths.counted, dtype=np.int64)
        return np.minimum(counted, self.case.job.seq) if self.lengths.counted else self.drawn

    @property
    def attended(self) -> float:
        return float((self.known.astype(np.float64) ** 2).mean() / self.known.mean())

    def step(self, packing: str) -> DataStep:
        """One of PACKINGS; what the others take is not looked at."""
        dealt = self.padded if packing == "off" else self.packed.dealt if packing == "on" else self.spread.dealt
        data = 1.0 - self.padding if packing == "off" else self.packed.filled if packing == "on" else 1.0
        return DataStep(
            step_s=dealt.slowest + self.once, tokens=self.in_step * float(self.known.mean()), waiting=dealt.waiting,
            data=data, attended_tokens=self.attended,
        )  # fmt: skip


def lengths_report(case: Case, policy: Policy, lengths: DataLengths) -> LengthsReport:
    steps = DrawnSteps(case, policy, lengths)
    off, on, dynamic = (steps.step(packing) for packing in PACKINGS)
    return LengthsReport(
        name=lengths.name,
        mean_tokens=float(steps.known.mean()),
        median_tokens=float(np.median(steps.known)),
        longest_tokens=int(steps.known.max()),
        cut=lengths.longer_than(case.job.seq),
        attended_tokens=off.attended_tokens,
        step_tokens=off.tokens,
        longest_step_s=steps.micro * float(steps.alone.seconds[-1]) + steps.once,
        padding=steps.padding,
        padded_step_s=off.step_s,
        padded_waiting=off.waiting,
        filled=on.data,
        sequences_per_buffer=steps.in_step / steps.packed.buffers,
        buffers=steps.packed.buffers,
        packed_step_s=on.step_s,
        packed_waiting=on.waiting,
        dynamic_step_s=dynamic.step_s,
        dynamic_waiting=dynamic.waiting,
        dynamic_shares=steps.spread.shares,
    )
