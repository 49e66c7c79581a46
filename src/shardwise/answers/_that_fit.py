"""The policies that fit next to one that does not, and the cost of each."""

from collections.abc import Sequence

from msgspec import Struct

from shardwise.answers.answer import Notes
from shardwise.plan.that_fit import PolicyThatFits
from shardwise.question.command import changed_words
from shardwise.report.terminal import policy_code
from shardwise.spec.policy import Policy
from shardwise.units import gib

NONE_NEAR = (
    "none within three changes; `plan` looks at every policy, more GPUs or a shorter sequence leave more room, and an "
    "optimizer with less state needs less"
)


class NearPolicy(Struct, frozen=True, kw_only=True):
    policy: Policy
    changed: tuple[str, ...]
    step_s: float
    peak_bytes: float
    slower: float
    """its step over that of the policy which does not fit, less 1"""

    def text(self, policy: Policy) -> str:
        """`policy`: the one that does not fit."""
        words = " ".join(changed_words(policy, self.policy))
        return f"{words}: step {self.slower:+.1%}, {gib(self.peak_bytes)} GiB ({policy_code(self.policy)})"


def near_policies(found: Sequence[PolicyThatFits], step_s: float) -> list[NearPolicy]:
    return [
        NearPolicy(policy=each.policy, changed=each.changed, step_s=each.step_s, peak_bytes=each.peak_bytes,
                   slower=each.step_s / step_s - 1)
        for each in found
    ]  # fmt: skip


def near_notes(room_bytes: float, policy: Policy, found: Sequence[NearPolicy], near: str = "nearest") -> Notes:
    lines = [each.text(policy) for each in found] or [NONE_NEAR]
    return Notes(lines, f"{near} that fit in {gib(room_bytes)} GiB, and the cost of each")
