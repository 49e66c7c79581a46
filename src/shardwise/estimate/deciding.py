"""Which numbers that nobody read in a program's source decide a step, and where each comes from."""

from dataclasses import dataclass

from shardwise.case import Case
from shardwise.estimate.closed_form import estimate
from shardwise.software import Origin, Stack
from shardwise.spec.policy import Policies, Policy

MATTERS = 0.05
"""share of a step from which on a number is named"""
PLAIN = Stack(name="plain", summary="every setting at its default", source="", date="")


@dataclass(frozen=True)
class DecidingNumber:
    setting: str
    value: float
    default: float
    origin: Origin
    share: float
    """of the step: how much longer it is than with the default; negative where it is shorter"""

    def __str__(self) -> str:
        change = f"{self.share:+.0%} of the step" if abs(self.share) < 1 else f"{1 + self.share:.3g} x the step"
        return f"{self.setting} {self.value:.4g} instead of {self.default:.4g}: {change}, {self.origin}"


def deciding_numbers(case: Case, policy: Policy) -> tuple[DecidingNumber, ...]:
    """Those timed, fitted, set on rows or assumed, each put back to its default by itself; the largest first."""
    one = Policies.of([policy])
    step = float(estimate(case, one).times.step_s[0])
    found = []
    for setting, origin in case.stack.origins:
        value, default = case.stack.setting(setting), PLAIN.setting(setting)
        if origin.kind in ("read", "default") or not isinstance(value, float) or value == default:
            continue
        without = float(estimate(case.changed(**{setting: default}), one).times.step_s[0])
        share = step / without - 1.0
        if abs(share) > MATTERS:
            found.append(DecidingNumber(setting, value, default, origin, share))
    return tuple(sorted(found, key=lambda number: -abs(number.share)))
