"""The same policy under every schedule that can run it."""

from msgspec.structs import replace

from shardwise.plugins.pipeline import Needs, needs
from shardwise.spec.policy import Policy
from shardwise.spec.rules import verdict_of
from shardwise.step.simulate.outcome import ScheduleOutcome
from shardwise.step.simulate.step import simulate
from shardwise.work.case import Case


def compare(case: Case, policy: Policy) -> list[ScheduleOutcome]:
    """Fastest first; a schedule that cannot run says why. One that needs chunks gets the policy's, or two. Without
    stages those that are made of stages are left out, with stages the one that has none."""
    rows = []
    for name, own in needs().items():
        if _needs_stages(own) if policy.pp == 1 else own.stages == "single":
            continue
        other = replace(policy, schedule=name, vpp=_chunks(own, policy))
        verdict = verdict_of(case.model, case.cluster, case.job, other, cure=False)
        if not verdict.legal:
            rows.append(ScheduleOutcome(schedule=name, vpp=other.vpp, step_s=None, bubble_share=None, idle_share=None,
                                 peak_bytes=None, closed_form_s=None, why_not=verdict.why))  # fmt: skip
            continue
        found = simulate(case, other)
        timeline = found.timeline()
        rows.append(ScheduleOutcome(
            schedule=name, vpp=other.vpp, step_s=found.step_s, bubble_share=timeline.bubble_share(),
            idle_share=timeline.idle_share(),
            peak_bytes=max(peak.bytes for peak in timeline.peaks()), closed_form_s=float(found.closed.times.step_s[0]),
        ))  # fmt: skip
    return sorted(rows, key=lambda row: (row.step_s is None, row.step_s or 0.0, row.schedule))


def _needs_stages(own: Needs) -> bool:
    return own.chunks != "one" or own.stages == "even"


def _chunks(own: Needs, policy: Policy) -> int:
    if own.chunks == "many":
        return max(policy.vpp, 2)
    return 2 if own.chunks == "two" else 1
