"""A policy that cannot run: the rule, its numbers, and a command line of the nearest policy that can."""

from collections.abc import Iterator

from msgspec.structs import replace

from shardwise.answers.answer import Answer, FactList, Notes, Part
from shardwise.estimate.synced import choice_of, refusal
from shardwise.question import PolicyQuestion
from shardwise.question.command import command_of
from shardwise.spec.job import Job
from shardwise.spec.model import Model
from shardwise.spec.policy import Policy
from shardwise.spec.rules import Verdict, verdict_of

SYNC_RULE = "sync strategy"


class CannotRunAnswer(Answer, frozen=True, kw_only=True):
    legal: bool
    fits: bool
    verdict: str
    rule: str
    why: str
    cure: str | None
    """a command line"""
    policy_origin: str
    """who chose the policy"""

    def parts(self) -> Iterator[Part]:
        yield FactList("this policy cannot run", [("rule", self.rule), ("because", self.why)])
        none = "no legal policy is near: other GPUs or another batch are needed"
        yield Notes([self.cure or none], "nearest that can")

    @property
    def exit_code(self) -> int:
        return 1


def cannot_run(model: str, on: str, ask: PolicyQuestion, verb: str = "estimate") -> CannotRunAnswer | None:
    """None where the policy can run. `model` and `on` as a command line of `verb` names them."""
    case = ask.case
    verdict = verdict_of(case.model, case.cluster, case.job, ask.policy)
    if verdict.legal:
        verdict = sync_verdict(case.model, case.job, ask.policy)
    if verdict.legal:
        return None
    return CannotRunAnswer(
        legal=False, fits=False, verdict=f"illegal: {verdict.rule}", rule=verdict.rule, why=verdict.why,
        cure=command_of(model, on, ask.job, verdict.cure, ask.stack.name, verb) if verdict.cure else None,
        policy_origin=ask.origin, notes=ask.notes,
    )  # fmt: skip


def sync_verdict(model: Model, job: Job, policy: Policy) -> Verdict:
    """Of a policy that is legal otherwise: whether its strategy of data parallelism may run it."""
    choice = choice_of(policy.sync)
    why = refusal(choice, model, job, policy) if choice else ""
    if not why or choice is None:
        return Verdict(legal=True)
    near = replace(policy, zero=0, shard_group=0)
    return Verdict(legal=False, rule=SYNC_RULE, why=why, cure=None if refusal(choice, model, job, near) else near)
