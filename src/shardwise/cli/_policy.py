"""A policy as command-line words, and the other way round for what has a default."""

import shlex

from shardwise.cli._job import DEFAULT_STACK, job_words
from shardwise.software import Stack
from shardwise.spec.job import Job
from shardwise.spec.pipeline import usual_schedule
from shardwise.spec.policy import OVERLAPS, Policy

WORDS = (
    ("tp", "--tp"), ("pp", "--pp"), ("dp", "--dp"), ("cp", "--cp"), ("ep", "--ep"), ("vpp", "--vpp"), ("etp", "--etp"),
    ("zero", "--zero"), ("micro_batch", "--micro"), ("recompute", "--recompute"),
    ("recompute_layers", "--recompute-layers"), ("recompute_modules", "--recompute-modules"),
    ("schedule", "--schedule"), ("shard_group", "--shard-group"), ("offload", "--offload"),
    ("offload_share", "--offload-share"), ("attention", "--attention"), ("loss", "--loss"), ("order", "--order"),
    ("sync", "--sync"),
)  # fmt: skip
ALWAYS = ("tp", "pp", "dp", "zero")


def command_of(model: str, on: str, job: Job, policy: Policy, stack: str, verb: str = "estimate") -> str:
    """`shardwise VERB ...` for this policy, ready to run."""
    default = Policy()
    words = ["shardwise", verb, model, "--on", on, *job_words(job)]
    if stack != DEFAULT_STACK:
        words += ["--stack", stack]
    for field, flag in WORDS:
        value = getattr(policy, field)
        implied = field == "schedule" and value == usual_schedule(policy.vpp)
        implied |= field == "offload_share" and policy.offload == "none"
        if field in ALWAYS or (value != getattr(default, field) and not implied):
            words += [flag, ",".join(value) if isinstance(value, tuple) else str(value)]
    if not policy.sp and policy.tp > 1:
        words.append("--no-sp")
    return shlex.join(words)


def overlap_words(policy: Policy, stack: Stack) -> list[str]:
    """The flags of what a policy overlaps otherwise than its program does by itself."""
    usual = stack.overlapping(policy)
    return [
        f"--{'' if getattr(policy, name) else 'no-'}{name.replace('_', '-')}"
        for name in OVERLAPS
        if getattr(policy, name) != getattr(usual, name)
    ]


def changed_words(before: Policy, after: Policy) -> list[str]:
    """The flags that turn one policy into another."""
    words = []
    for field, flag in WORDS:
        value = getattr(after, field)
        if value != getattr(before, field):
            words += [flag, ",".join(value) if isinstance(value, tuple) else str(value)]
    return words
