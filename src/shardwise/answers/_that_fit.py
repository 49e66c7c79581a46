"""The policies that fit next to one that does not, and the cost of each."""

from collections.abc import Iterator, Sequence
from typing import TypedDict

from msgspec import UNSET, Struct, UnsetType

from shardwise.answers.answer import Answer, Notes
from shardwise.plan.that_fit import PolicyThatFits, policies_that_fit
from shardwise.question.command import changed_words
from shardwise.report.terminal import policy_code
from shardwise.spec.policy import Policy
from shardwise.units import gib
from shardwise.work.case import Case

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


class FitsNear(Answer, frozen=True, kw_only=True):
    """Fields of an answer about one policy that may not fit."""

    that_fit: Sequence[NearPolicy]
    """where it does not fit: those next to it that do"""
    room_bytes: float | UnsetType = UNSET
    """of a GPU's memory, where it does not fit"""

    def near(self, policy: Policy, title: str = "nearest") -> Iterator[Notes]:
        if not isinstance(self.room_bytes, UnsetType):
            yield near_notes(self.room_bytes, policy, self.that_fit, title)


class _NearFields(TypedDict):
    that_fit: Sequence[NearPolicy]
    room_bytes: float | UnsetType


def fits_near(case: Case, policy: Policy, step_s: float, *, fits: bool) -> _NearFields:
    """The fields of `FitsNear`, from a policy and its step."""
    if fits:
        return {"that_fit": (), "room_bytes": UNSET}
    return {"that_fit": near_policies(policies_that_fit(case, policy), step_s), "room_bytes": room_of(case)}


def room_of(case: Case) -> float:
    return case.cluster.gpu.memory_bytes - case.stack.memory.reserve_bytes


def near_policies(found: Sequence[PolicyThatFits], step_s: float) -> list[NearPolicy]:
    return [
        NearPolicy(policy=each.policy, changed=each.changed, step_s=each.step_s, peak_bytes=each.peak_bytes,
                   slower=each.step_s / step_s - 1)
        for each in found
    ]  # fmt: skip


def near_notes(room_bytes: float, policy: Policy, found: Sequence[NearPolicy], near: str = "nearest") -> Notes:
    lines = [each.text(policy) for each in found] or [NONE_NEAR]
    return Notes(lines, f"{near} that fit in {gib(room_bytes)} GiB, and the cost of each")
