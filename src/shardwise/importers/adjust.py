"""One training run -> one factor on all kernels and one offset of memory, so that the estimate meets the run."""

import math
from dataclasses import dataclass

from msgspec.structs import replace

from shardwise.calibrate.overlay import faster
from shardwise.calibrate.profile import Profile, RunCorrection
from shardwise.case import case_of
from shardwise.estimate.closed_form import estimate
from shardwise.importers.training_log import RunFacts
from shardwise.software import Stack
from shardwise.spec.cluster import Cluster
from shardwise.spec.job import Job
from shardwise.spec.model import Model
from shardwise.spec.policy import Policies, Policy

SLOWEST, FASTEST = 0.1, 5.0
ROUNDS = 40


@dataclass(frozen=True, kw_only=True)
class LoggedRun:
    """A run's log, and what ran, of which a log says nothing."""

    facts: RunFacts
    model: Model
    cluster: Cluster
    job: Job
    policy: Policy
    stack: Stack
    profile: Profile | None
    """what else was measured; its own run, if it has one, is replaced"""

    @property
    def step_s(self) -> float:
        facts = self.facts
        found = facts.step_s or self.job.step_tokens / ((facts.tokens_per_s_per_gpu or math.nan) * self.policy.gpus)
        if not 0 < found < math.inf:
            raise ValueError("from: the log states neither a step time nor tokens per second")
        return found

    def predicted(self, factor: float) -> tuple[float, float]:
        """(seconds of a step, bytes at the peak) with kernels so many times as fast."""
        profile = None if self.profile is None else replace(self.profile, run=None)
        case = case_of(self.model, self.cluster, self.job, faster(self.stack, factor), profile)
        found = estimate(case, Policies.of([self.policy]), every_stage=True)
        return float(found.times.step_s[0]), float(found.memory.peak[0])


def correction_of(run: LoggedRun) -> RunCorrection:
    measured, facts = run.step_s, run.facts
    step, peak = run.predicted(1.0)
    low, high = SLOWEST, FASTEST
    for _ in range(ROUNDS):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if run.predicted(middle)[0] < measured else (middle, high)
    factor = math.sqrt(low * high)
    reached = run.predicted(factor)[0]
    if abs(reached / measured - 1) > 0.02:
        raise ValueError(
            f"from: the run took {measured:.4g} s a step, {step:.4g} s are predicted, and kernels {SLOWEST:g} to "
            f"{FASTEST:g} times as fast do not close the gap; check --model, --on and the policy's flags"
        )
    offset = facts.peak_bytes - peak if facts.peak_bytes is not None else 0.0
    return RunCorrection(
        kernel_factor=factor, memory_offset_bytes=offset, step_ratio=measured / step,
        source=f"{facts.software} log, {facts.steps} steps" + (f", {facts.memory_is}" if facts.peak_bytes else ""),
    )  # fmt: skip
