"""Steps by the stacks that pass as one program: its name alone does not say which release or recipe runs."""

from shardwise.spec.policy import Policies, Policy
from shardwise.spec.software import known_stack, named
from shardwise.step.estimate.closed_form import estimate
from shardwise.units import time_text
from shardwise.work.case import Case, case_of

ALIKE = 0.01
"""steps that differ by less are one number to a reader"""


def release_steps(case: Case, policy: Policy) -> dict[str, float]:
    """Seconds by stack, this case's first; itself alone where no other passes as its program."""
    found = {case.stack.name: float(estimate(case, Policies.of([policy])).times.step_s[0])}
    for rival in named(case.stack).rivals:
        other = case_of(case.model, case.cluster, case.job, known_stack(rival.name), case.profile)
        found[rival.name] = float(estimate(other, Policies.of([policy])).times.step_s[0])
    return found


def release_lines(case: Case, policy: Policy) -> list[str]:
    """What has to be said where they disagree."""
    steps = release_steps(case, policy)
    return [range_words(steps)] if disagree(steps) else []


def disagree(by_stack: dict[str, float]) -> bool:
    return max(by_stack.values()) > min(by_stack.values()) * (1 + ALIKE)


def range_words(by_stack: dict[str, float]) -> str:
    ordered = sorted(by_stack.items(), key=lambda item: item[1])
    told = ", ".join(f"{name} {time_text(seconds)}" for name, seconds in ordered)
    ends = f"{time_text(ordered[0][1])} .. {time_text(ordered[-1][1])}"
    return f"{len(ordered)} stacks pass as this program: {ends} ({told})"
