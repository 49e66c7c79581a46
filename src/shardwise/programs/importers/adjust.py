"""One training run -> one factor on all kernels and one offset of memory, so that the estimate meets the run."""

import math
from dataclasses import replace

from msgspec import structs

from shardwise.cost.calibrate.overlay import faster
from shardwise.cost.calibrate.profile import RunCorrection
from shardwise.programs.importers.training_log import RunFacts
from shardwise.question import PolicyQuestion
from shardwise.spec.policy import Policies
from shardwise.step.estimate.closed_form import estimate

SLOWEST, FASTEST = 0.1, 5.0
ROUNDS = 40


def correction_of(facts: RunFacts, question: PolicyQuestion) -> RunCorrection:
    """`facts`: of the log; `question`: what ran, of which a log says nothing. A run that its profile holds already is
    replaced."""
    measured = _step_s(facts, question)
    step, peak = _predicted(question, 1.0)
    low, high = SLOWEST, FASTEST
    for _ in range(ROUNDS):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if _predicted(question, middle)[0] < measured else (middle, high)
    factor = math.sqrt(low * high)
    reached = _predicted(question, factor)[0]
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


def _step_s(facts: RunFacts, question: PolicyQuestion) -> float:
    rate = (facts.tokens_per_s_per_gpu or math.nan) * question.policy.gpus
    found = facts.step_s or question.job.step_tokens / rate
    if not 0 < found < math.inf:
        raise ValueError("from: the log states neither a step time nor tokens per second")
    return found


def _predicted(question: PolicyQuestion, factor: float) -> tuple[float, float]:
    """(seconds of a step, bytes at the peak) with kernels so many times as fast."""
    profile = None if question.profile is None else structs.replace(question.profile, run=None)
    case = replace(question, stack=faster(question.stack, factor), profile=profile).case
    found = estimate(case, Policies.of([question.policy]), every_stage=True)
    return float(found.times.step_s[0]), float(found.memory.peak[0])
