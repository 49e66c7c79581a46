"""A policy in a few words: 'tp=8,pp=4', 'fsdp', 'hsdp,micro=2'; or a search inside bounds: 'best,zero=3', '3d'."""

from dataclasses import replace as changed
from typing import Any

from shardwise.plan.constraints import Constraint, constraints_of, words_of
from shardwise.plugins.pipeline import usual_schedule
from shardwise.question import Question
from shardwise.registry import closest
from shardwise.spec.cluster import Cluster
from shardwise.spec.policy import Policy, choices
from shardwise.spec.rules import verdict_of
from shardwise.spec.software import Stack

NAMES = {"ddp": "zero=0", "fsdp": "zero=3", "hsdp": "zero=3", "best": "", "3d": "tp>1,pp>1"}
SEARCHED = ("best", "3d")
FORM = "'tp=8,pp=4', ddp, fsdp, hsdp, 3d, best or 'best,zero=3'"


def policy_from(text: str, case: Question, cluster: Cluster, *, or_smallest: bool = False) -> Policy | None:
    """The policy, legal or not; None where a search was asked for and nothing fits.

    `or_smallest`: then the policy that needs the least memory, and None only where nothing is legal.
    """
    name, settings = _split(text)
    constraints = constraints_of(settings)
    if name in SEARCHED:
        ranked = changed(case, only=(*case.only, *constraints)).ranked(cluster)
        found = ranked.recommended or (ranked.smallest if or_smallest else None)
        return None if found is None else found.policy
    if name == "hsdp" and not any(c.field == "shard_group" for c in constraints):
        constraints += constraints_of([f"shard_group={cluster.node_size}"])
    return stated_policy(constraints, cluster, case.stack)


def nothing_legal(text: str, case: Question, cluster: Cluster) -> str:
    """Why a search inside these bounds found no legal policy: the rule that they break, with its numbers."""
    bounds = constraints_of(_split(text)[1])
    return refusal_of((*case.only, *bounds), case, cluster)


def refusal_of(bounds: tuple[Constraint, ...], case: Question, cluster: Cluster) -> str:
    fixed = tuple(c for c in bounds if c.compare == "=")
    stated = stated_policy(fixed, cluster, case.stack)
    verdict = verdict_of(case.model, cluster, case.job, stated, cure=False)
    if fixed and not verdict.legal:
        return f"{verdict.rule}: {verdict.why}"
    return (
        f"degrees have to divide {cluster.gpus:,} GPUs, and data parallelism times micro-batch the "
        f"{case.job.global_batch:,} sequences of a step; no policy{' with ' + words_of(bounds) if bounds else ''} does"
    )


def check_policy(text: str) -> None:
    """Bad text fails here, before anything long is started."""
    name, settings = _split(text)
    _ = constraints_of(settings) if name in SEARCHED else _values(constraints_of(settings))


def _split(text: str) -> tuple[str, list[str]]:
    first, _, rest = text.strip().partition(",")
    if any(sign in first for sign in "=<>"):
        return "", [text]
    name = first.strip().lower()
    if name not in NAMES:
        raise ValueError(f"policy: {first!r} is unknown; {closest(name, list(NAMES))}; or write {FORM}")
    return name, [part for part in (NAMES[name], rest) if part]


def _values(constraints: tuple[Constraint, ...]) -> dict[str, Any]:
    default, values = Policy(), {}
    for item in constraints:
        if item.compare != "=":
            raise ValueError(f"policy: {item.text!r} names no single policy; write '=' here, or 'best,{item.text}'")
        kind = bool if isinstance(getattr(default, item.field), bool) else int
        values[item.field] = choices()[item.field][item.value] if item.field in choices() else kind(item.value)
    return values


def stated_policy(constraints: tuple[Constraint, ...], cluster: Cluster, stack: Stack) -> Policy:
    """The fields stated; data parallelism is what is left, overlap the stack's, the rest Policy's defaults."""
    values = _values(constraints)
    model_gpus = max(values.get("tp", 1) * values.get("pp", 1) * values.get("cp", 1), 1)
    implied: dict[str, Any] = {
        "dp": max(cluster.gpus // model_gpus, 1),
        "sp": values.get("tp", 1) > 1,
        "schedule": usual_schedule(values.get("vpp", 1)),
    }
    return stack.overlapping(Policy(**{**implied, **values}), values)
