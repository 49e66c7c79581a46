"""What a verb says at the end of "out of memory": the nearest policies that fit, and the cost of each."""

import sys

from shardwise.answers._that_fit import near_policies
from shardwise.plan.that_fit import policies_that_fit
from shardwise.spec.policy import Policies, Policy
from shardwise.step.estimate.closed_form import estimate
from shardwise.step.estimate.synced import choice_of
from shardwise.units import gib
from shardwise.work.case import Case


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
