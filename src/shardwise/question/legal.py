"""Whether a policy can run in a case: the rules of every policy, then those of its strategy of data parallelism."""

from msgspec.structs import replace

from shardwise.spec.policy import Policy
from shardwise.spec.rules import Verdict, verdict_of
from shardwise.step.estimate.synced import choice_of, refusal
from shardwise.work.case import Case

RULE = "sync strategy"


def legal_of(case: Case, policy: Policy, *, cure: bool = True) -> Verdict:
    """`cure`: also the nearest policy that can run."""
    model, job = case.model, case.job
    verdict = verdict_of(model, case.cluster, job, policy, cure=cure)
    choice = choice_of(policy.sync) if verdict.legal else None
    why = refusal(choice, model, job, policy) if choice else ""
    if not why or choice is None:
        return verdict
    near = replace(policy, zero=0, shard_group=0)
    return Verdict(legal=False, rule=RULE, why=why, cure=None if refusal(choice, model, job, near) else near)
