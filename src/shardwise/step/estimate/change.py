"""How far the gain of another policy may lie from its prediction: what both steps share cancels."""

from collections.abc import Sequence
from math import exp

from shardwise.spec.policy import Policies, Policy
from shardwise.step.estimate.band import band_of
from shardwise.step.estimate.closed_form import estimate
from shardwise.step.estimate.learned import change_reach
from shardwise.work.case import Case


def change_ranges(case: Case, now: Policy, others: Sequence[Policy]) -> list[tuple[float, float] | None]:
    """Of the change of the step, as a share of it, in 80 % of runs. None where nothing like the model was measured."""
    if not others or band_of(case) is None:
        return [None] * len(others)
    found = estimate(case, Policies.of([now, *others]))
    ratios = found.times.step_s[1:] / found.times.step_s[0]
    return [
        (float(ratio) * exp(-reach) - 1.0, float(ratio) * exp(reach) - 1.0)
        for ratio, reach in zip(ratios, map(float, change_reach(case, found.work, found.times)), strict=True)
    ]
