"""What a verb says at the end of "out of memory": the nearest policies that fit, and the cost of each."""

import sys
from collections.abc import Sequence
from typing import Any

import msgspec

from shardwise.answers._that_fit import near_notes, near_policies
from shardwise.plan.that_fit import PolicyThatFits, policies_that_fit
from shardwise.show.cli._output import print_parts
from shardwise.spec.policy import Policies, Policy
from shardwise.step.estimate.closed_form import estimate
from shardwise.step.estimate.synced import choice_of
from shardwise.units import gib
from shardwise.work.case import Case


def print_that_fit(
    case: Case, policy: Policy, found: Sequence[PolicyThatFits], step_s: float, *, near: str = "nearest"
) -> None:
    room = case.cluster.gpu.memory_bytes - case.stack.memory.reserve_bytes
    print_parts([near_notes(room, policy, near_policies(found, step_s), near)])


def that_fit_data(found: Sequence[PolicyThatFits], step_s: float) -> list[Any]:
    data: list[Any] = msgspec.to_builtins(near_policies(found, step_s))
    return data


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
    for each in near_policies(policies_that_fit(case, policy), step_s):
        print(f"  {each.text(policy)}", file=sys.stderr)
