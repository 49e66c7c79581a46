"""Once it runs: what a trial of a few steps shows beside the prediction. `why` says more of the same files."""

from collections.abc import Sequence

from shardwise.measured.diagnose.why_slow import expected_parts
from shardwise.report.report import Report
from shardwise.run.preflight.finding import Finding, Probe, Subject, failed, passed, unknown, warned
from shardwise.run.preflight.limits import limit
from shardwise.run.preflight.measurements import Trial
from shardwise.run.preflight.node import Node
from shardwise.run.preflight.planned import PlannedJob
from shardwise.run.preflight.subjects.plan import planned
from shardwise.step.estimate.band import tuned_band
from shardwise.units import time_text

NEEDS_TRACE = ("no trace", "trace a few steps with torch.profiler; write --trial with the files")
NEEDS_LOG = ("no log of steps", "write --trial with the training log")
WITHOUT_KERNEL = ("idle", "host", "data", "checkpoint", "evaluation", "bubble")
"""parts of a step in which a GPU runs nothing; while it waits inside a collective a kernel runs"""
CURE = "`shardwise why` on the same files names the cause"


def trial_here(nodes: Sequence[Node]) -> Trial:
    return next((node.measured.trial for node in nodes if node.measured.trial is not None), Trial())


def utilization(nodes: Sequence[Node], plan: PlannedJob | None) -> Finding:
    _, training = planned(plan)
    report, trial = training.report, trial_here(nodes)
    steps, trace = trial.steps, trial.trace
    measured = steps.median_s if steps is not None and steps.exact else trace.step_s if trace is not None else None
    if measured is None:
        return unknown(*NEEDS_LOG)
    mfu = report.mfu_causal_half * report.step_s / measured
    told = f"step {time_text(measured)}, predicted {time_text(report.step_s)}; MFU {mfu:.1%}"
    band = tuned_band(training.case)
    high = max(band.high if band else 0.0, limit("run.utilization"))
    return warned(told, CURE) if measured > report.step_s * (1 + high) else passed(told)


def busy(nodes: Sequence[Node], plan: PlannedJob | None) -> Finding:
    """As `nvidia-smi` counts utilization: the share of time in which any kernel runs."""
    _, training = planned(plan)
    trace = trial_here(nodes).trace
    if trace is None:
        return unknown(*NEEDS_TRACE)
    report = training.report
    share = 1 - sum(trace.parts_s.get(part, 0.0) for part in WITHOUT_KERNEL) / trace.step_s
    meant = 1 - expected_parts(report.time_s).get("bubble", 0.0) / report.step_s
    told = f"a kernel runs in {share:.0%} of a step, predicted {meant:.0%}"
    return warned(told, CURE) if share < meant - limit("run.busy_points") else passed(told)


def variance(nodes: Sequence[Node], plan: PlannedJob | None) -> Finding:  # noqa: ARG001
    steps = trial_here(nodes).steps
    if steps is None:
        return unknown(*NEEDS_LOG)
    if steps.records < 8:
        return unknown(f"{steps.records} steps are too few")
    told = f"varies by {steps.variation:.1%}, the slowest hundredth {steps.tail:.2f} times the middle"
    bad = steps.variation > limit("run.variation") or steps.tail > limit("run.tail")
    return warned(told, CURE) if bad else passed(told)


def overlap(nodes: Sequence[Node], plan: PlannedJob | None) -> Finding:
    _, training = planned(plan)
    trace = trial_here(nodes).trace
    if trace is None:
        return unknown(*NEEDS_TRACE)
    total = trace.hidden_s + trace.exposed_s
    if total <= 0:
        return unknown("the trace has no collective")
    share, meant = trace.hidden_s / total, _hidden_share(training.report)
    told = f"{share:.0%} of communication hidden, predicted {meant:.0%}"
    return warned(told, CURE) if share < meant - limit("run.overlap_points") else passed(told)


def _hidden_share(report: Report) -> float:
    hidden = sum(report.hidden_s.values())
    exposed = sum(seconds for part, seconds in report.time_s.items() if part.endswith("_comm") and part != "pp_comm")
    return hidden / (hidden + exposed) if hidden + exposed > 0 else 0.0


def stragglers(nodes: Sequence[Node], plan: PlannedJob | None) -> Finding:  # noqa: ARG001
    trace = trial_here(nodes).trace
    if trace is None:
        return unknown(*NEEDS_TRACE)
    if trace.slowest is None:
        return unknown("one rank was traced", "trace several ranks")
    told = f"the slowest of {trace.ranks} ranks computes at {trace.slowest:.0%} of the middle one"
    if trace.slow_rank:
        told += f"; all wait for {trace.slow_rank}"
    if trace.slowest < limit("run.straggler_fail"):
        return failed(told, "look at that host's gpus and counters above; else leave it out")
    return warned(told, CURE) if trace.slowest < limit("run.straggler_warn") or trace.slow_rank else passed(told)


def bubble(nodes: Sequence[Node], plan: PlannedJob | None) -> Finding:
    _, training = planned(plan)
    trace = trial_here(nodes).trace
    if training.policy.pp == 1:
        return passed("no pipeline")
    if trace is None:
        return unknown(*NEEDS_TRACE)
    report = training.report
    share = trace.parts_s.get("bubble", 0.0) / trace.step_s
    meant = expected_parts(report.time_s).get("bubble", 0.0) / report.step_s
    told = f"{share:.1%} of the step, predicted {meant:.1%}"
    return warned(told, CURE) if share > meant + limit("run.bubble_points") else passed(told)


def exchange(nodes: Sequence[Node], plan: PlannedJob | None) -> Finding:
    _, training = planned(plan)
    trace = trial_here(nodes).trace
    if training.policy.ep == 1:
        return passed("no expert parallelism")
    if trace is None:
        return unknown(*NEEDS_TRACE)
    seconds, meant = trace.parts_s.get("ep_comm", 0.0), training.report.time_s.get("ep_comm", 0.0)
    told = f"{time_text(seconds)} exposed a step, predicted {time_text(meant)}"
    bad = seconds > max(meant, 1e-3 * trace.step_s) * limit("run.expert_load")
    return warned(told, "a hot expert or a slow link: " + CURE) if bad else passed(told)


SUBJECT = Subject("trial", 110, (
    Probe("run-step", "step time and utilization", "--trial: log or traces", across=utilization, needs="trial plan"),
    Probe("gpu-utilization", "share of time with a kernel", "--trial: traces", across=busy, needs="trial plan"),
    Probe("run-variance", "step times are even", "--trial: log", across=variance, needs="trial"),
    Probe("run-overlap", "communication is hidden", "--trial: traces", across=overlap, needs="trial plan"),
    Probe("run-stragglers", "no rank is slower than the others", "--trial: traces", across=stragglers, needs="trial"),
    Probe("run-bubble", "the pipeline's bubble", "--trial: traces", across=bubble, needs="trial plan"),
    Probe("run-exchange", "All-to-All of the experts", "--trial: traces", across=exchange, needs="trial plan"),
))  # fmt: skip
