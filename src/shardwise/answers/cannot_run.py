"""A policy that cannot run: the rule, its numbers, and a command line of the nearest policy that can."""

from collections.abc import Iterator

from shardwise.answers.answer import Answer, FactList, Notes, Part
from shardwise.question import PolicyQuestion
from shardwise.question.command import command_of
from shardwise.question.legal import legal_of


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
    verdict = legal_of(ask.case, ask.policy)
    if verdict.legal:
        return None
    return CannotRunAnswer(
        legal=False, fits=False, verdict=f"illegal: {verdict.rule}", rule=verdict.rule, why=verdict.why,
        cure=command_of(model, on, ask.job, verdict.cure, ask.stack.name, verb) if verdict.cure else None,
        policy_origin=ask.origin, notes=ask.notes,
    )  # fmt: skip
