"""What every verb says at the end of "out of memory": the nearest policies that fit, and the cost of each."""

import sys
from collections.abc import Sequence
from typing import Any

import msgspec

from shardwise.case import Case
from shardwise.cli._output import print_notes
from shardwise.estimate.closed_form import estimate
from shardwise.estimate.synced import choice_of
from shardwise.plan.that_fit import PolicyThatFits, policies_that_fit
from shardwise.question.command import changed_words
from shardwise.report.terminal import policy_code
from shardwise.spec.policy import Policies, Policy
from shardwise.units import gib

NONE_NEAR = (
    "none within three changes; `plan` looks at every policy, more GPUs or a shorter sequence leave more room, and an "
    "optimizer with less state needs less"
)


def that_fit_line(policy: Policy, found: PolicyThatFits, step_s: float) -> str:
    words = " ".join(changed_words(policy, found.policy))
    return f"{words}: step {found.step_s / step_s - 1:+.1%}, {gib(found.peak_bytes)} GiB ({policy_code(found.policy)})"


def print_that_fit(
    case: Case, policy: Policy, found: Sequence[PolicyThatFits], step_s: float, *, near: str = "nearest"
) -> None:
    lines = [that_fit_line(policy, each, step_s) for each in found]
    room = gib(case.cluster.gpu.memory_bytes - case.stack.memory.reserve_bytes)
    print_notes(lines or [NONE_NEAR], title=f"{near} that fit in {room} GiB, and the cost of each")


def that_fit_data(found: Sequence[PolicyThatFits], step_s: float) -> list[dict[str, Any]]:
    return [
        {
            "policy": msgspec.to_builtins(each.policy), "changed": each.changed, "step_s": each.step_s,
            "peak_bytes": each.peak_bytes, "slower": each.step_s / step_s - 1,
        }
        for each in found
    ]  # fmt: skip


def warn_of_memory(case: Case, policy: Policy) -> None:
    """Before something long is started: one line on stderr for a policy that should not fit, and one for each that
    should."""
    found = estimate(case, Policies.of([policy]), sync=choice_of(policy.sync, case.job.optimizer.name))
    if found.fits[0]:
        return
    peak, step_s = float(found.memory.peak[0]), float(found.times.step_s[0])
    gpu = case.cluster.gpu
    needed = f"{gib(peak)} GiB predicted on a {gpu.name} of {gib(gpu.memory_bytes)} GiB"
    print(f"warning: {needed}; these should fit:", file=sys.stderr)
    for each in policies_that_fit(case, policy):
        print(f"  {that_fit_line(policy, each, step_s)}", file=sys.stderr)
