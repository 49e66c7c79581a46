"""What sequences of each length cost under one policy, from the closed form at some lengths and lines between them."""

from dataclasses import dataclass, replace

import numpy as np
from msgspec.structs import replace as with_fields

from shardwise.arrays import Floats
from shardwise.spec.lengths import Tokens
from shardwise.spec.policy import Policies, Policy
from shardwise.step.estimate.closed_form import estimate
from shardwise.work.case import Case

ONCE = ("grad_comm", "param_comm", "optimizer", "other")
"""parts of a step that its tokens do not lengthen"""
GRID = (1, 4 / 3, 2, 8 / 3, 4, 16 / 3, 8, 16, 32, 64)
"""the longest sequence over the lengths that are priced"""
UPPER_HALF = (1, 4 / 3, 2)


@dataclass(frozen=True)
class MicroBatchPrices:
    at: Floats
    """lengths that were priced, shortest first"""
    seconds: Floats
    """of a micro-batch whose sequences all have that length"""

    def of(self, longest: Tokens) -> Floats:
        """Micro-batches that are padded to their longest sequence."""
        return np.asarray(np.interp(longest, self.at, self.seconds))


@dataclass(frozen=True)
class TokenPrices:
    at: Floats
    per_token: Floats
    """seconds, where sequences of that length fill a whole micro-batch"""

    def of(self, lengths: Tokens) -> Floats:
        """Sequences among others that fill a micro-batch with them; attention stays inside each."""
        return np.asarray(lengths * np.interp(lengths, self.at, self.per_token))

    def empty(self, tokens: Tokens) -> Floats:
        """Tokens of a buffer that no sequence fills."""
        return np.asarray(tokens * self.per_token[0])


def micro_batch_prices(case: Case, policy: Policy, micro: int, grid: tuple[float, ...] = GRID) -> MicroBatchPrices:
    """`micro`: micro-batches of a step, over which a pipeline fills and drains."""
    at = _lengths(case, policy, grid)
    seconds = [_seconds(case, policy, length, policy.micro_batch, micro)[0] for length in at]
    return MicroBatchPrices(np.array(at, dtype=np.float64), np.array(seconds))


def token_prices(case: Case, policy: Policy, micro: int) -> TokenPrices:
    at, per_token = _lengths(case, policy, GRID), []
    for length in at:
        several = policy.micro_batch * max(round(case.job.seq / length), 1)
        per_token.append(_seconds(case, policy, length, several, micro)[0] / (several * length))
    return TokenPrices(np.array(at, dtype=np.float64), np.array(per_token))


def once_seconds(case: Case, policy: Policy, micro: int) -> float:
    """Of a step, whatever its tokens."""
    return _seconds(case, policy, case.job.seq, policy.micro_batch, micro)[1]


def _lengths(case: Case, policy: Policy, grid: tuple[float, ...]) -> list[int]:
    seq, step = case.job.seq, policy.cp * (policy.tp if policy.sp else 1)
    return sorted({min(max(round(seq / part / step), 1) * step, seq) for part in grid})


def _seconds(case: Case, policy: Policy, length: int, several: int, micro: int) -> tuple[float, float]:
    """Of one of so many micro-batches, each of several sequences; and of what a step has once."""
    job = with_fields(case.job, seq=length, global_batch=policy.dp * several * micro)
    one = Policies.of([with_fields(policy, micro_batch=several)])
    times = estimate(replace(case, job=job), one, every_stage=True).times
    once = sum(float(times.parts[name][0]) for name in ONCE)
    return (float(times.step_s[0]) - once) / micro, once
