"""`--sync`: a strategy of data parallelism as part of a policy."""

from typing import Annotated

from cyclopts import Parameter
from msgspec.structs import replace

from shardwise.cli._groups import POLICY
from shardwise.estimate.synced import choice_of, refusal
from shardwise.spec.job import Job
from shardwise.spec.model import Model
from shardwise.spec.policy import Policy
from shardwise.spec.rules import Verdict

RULE = "sync strategy"
SyncName = Annotated[
    str | None,
    Parameter(
        name="--sync",
        group=POLICY,
        help="Data parallelism that sends less: NAME[,setting=value...], as in `sync list`.",
    ),
]


def with_sync(policy: Policy, text: str | None) -> Policy:
    """Bad names and settings are refused here."""
    if text is None:
        return policy
    choice = choice_of(text.strip())
    return replace(policy, sync=choice.text if choice else "")


def sync_verdict(model: Model, job: Job, policy: Policy) -> Verdict:
    """Of a policy that is legal otherwise."""
    choice = choice_of(policy.sync)
    why = refusal(choice, model, job, policy) if choice else ""
    if not why or choice is None:
        return Verdict(legal=True)
    near = replace(policy, zero=0, shard_group=0)
    return Verdict(legal=False, rule=RULE, why=why, cure=None if refusal(choice, model, job, near) else near)
