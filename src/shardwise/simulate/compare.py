"""The same policy under every schedule that can run it."""

from msgspec.structs import replace

from shardwise.case import Case
from shardwise.schedules import schedules
from shardwise.simulate.outcome import ScheduleOutcome
from shardwise.simulate.step import simulate
from shardwise.spec.pipeline import NEEDS
from shardwise.spec.policy import Policy
from shardwise.spec.rules import verdict_of


def compare(case: Case, policy: Policy) -> list[ScheduleOutcome]:
    """Fastest first; a schedule that cannot run says why. One that needs chunks gets the policy's, or two. Without
    stages those that are made of stages are left out, with stages the one that has none."""
    rows = []
    for name in schedules():
        if _needs_stages(name) if policy.pp == 1 else NEEDS[name].stages == "single":
            continue
        other = replace(policy, schedule=name, vpp=_chunks(name, policy))
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


def _needs_stages(name: str) -> bool:
    return NEEDS[name].chunks != "one" or NEEDS[name].stages == "even"


def _chunks(name: str, policy: Policy) -> int:
    needs = schedules()[name].chunks
    if needs == "many":
        return max(policy.vpp, 2)
    return 2 if needs == "two" else 1
