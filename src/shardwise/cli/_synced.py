"""Whether a policy may have its strategy of data parallelism."""

from msgspec.structs import replace

from shardwise.estimate.synced import choice_of, refusal
from shardwise.spec.job import Job
from shardwise.spec.model import Model
from shardwise.spec.policy import Policy
from shardwise.spec.rules import Verdict

RULE = "sync strategy"


def sync_verdict(model: Model, job: Job, policy: Policy) -> Verdict:
    """Of a policy that is legal otherwise."""
    choice = choice_of(policy.sync)
    why = refusal(choice, model, job, policy) if choice else ""
    if not why or choice is None:
        return Verdict(legal=True)
    near = replace(policy, zero=0, shard_group=0)
    return Verdict(legal=False, rule=RULE, why=why, cure=None if refusal(choice, model, job, near) else near)
