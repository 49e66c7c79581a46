"""The policy of a question, and the bounds of a search: what is stated, what a program usually does for the rest."""

from typing import Any

import numpy as np

from shardwise.plan.constraints import Constraint, constraints_of
from shardwise.plan.space import Limits
from shardwise.plugins.pipeline import usual_schedule
from shardwise.question.job import usual_micro
from shardwise.spec.cluster import Cluster
from shardwise.spec.job import Job
from shardwise.spec.model import Model
from shardwise.spec.parameter import OVERLAP, POLICY
from shardwise.spec.parameters import SharedOptions, stated
from shardwise.spec.policy import OVERLAPS, Policy, encoded
from shardwise.spec.software import Stack
from shardwise.spec.software.limits import broken_by
from shardwise.work.context_parallel import whole_heads

FIELDS = {"micro": "micro_batch"}
"""parameters whose field in a policy has another name"""
NOT_BOUNDS = ("loss", "recompute_modules", "offload_share", "sync")
"""parameters that every policy of a search has as stated, instead of being bounds on them"""


def stated_policy(options: SharedOptions, model: Model, cluster: Cluster, job: Job, stack: Stack
                  ) -> tuple[Policy, list[str]]:  # fmt: skip
    """What is stated; data parallelism is the rest of the GPUs, overlap the stack's, the rest Policy's defaults."""
    notes: list[str] = []
    values: dict[str, Any] = {
        FIELDS.get(name, name): getattr(options, name)
        for name in stated(options, POLICY, OVERLAP) if name not in ("recompute_modules", "sync")
    }  # fmt: skip
    tp, cp = values.get("tp", 1), values.get("cp", 1)
    dp = values.setdefault("dp", max(cluster.gpus // (tp * values.get("pp", 1) * cp), 1))
    whole = usual_micro(model, job, dp)
    if values.setdefault("micro_batch", whole) == whole > 1 and options.micro is None:
        share = max(job.global_batch // max(dp, 1), 1)
        of = "examples" if model.inputs == "features" else "images"
        notes.append(f"--micro not given: {whole:,}, {'all' if whole == share else f'of {share:,}'} {of} of a rank")
    values["sp"] = values.get("sp", True) and tp > 1 and model.inputs != "features"
    if values["sp"] and model.sample_tokens and model.sample_tokens // max(cp, 1) % tp:
        values["sp"] = False
        notes.append(f"sp: left out, {model.sample_tokens:,} tokens of an image do not divide by tp {tp}")
    if options.offload_share not in (None, 1) and options.offload in (None, "none"):
        raise ValueError(
            f"offload-share: {options.offload_share:g} of nothing; write --offload optimizer, activations or both"
        )
    values.setdefault("schedule", usual_schedule(values.get("vpp", 1)))
    values["recompute_modules"] = modules_of(options.recompute_modules)
    overlaps = {name: values[name] for name in OVERLAPS if name in values}
    policy = stack.overlapping(Policy(**values), overlaps)
    if not whole_heads(model, stack, np.array([tp]), np.array([cp])).all():
        raise ValueError(
            f"context-parallel: ulysses needs cp {cp} to divide the query heads of a tp rank; write --context-parallel "
            "ring or gather"
        )
    notes += [
        f"{limit.field}: {stack.name} does not run it so: {limit.why}"
        for limit in broken_by(stack.abilities.limits, policy)
        if limit.field in overlaps
    ]
    return policy, notes


def bounds_of(options: SharedOptions) -> tuple[Constraint, ...]:
    """Of a search: each stated parameter of the policy, and `fix`."""
    texts = []
    for name in stated(options, POLICY, OVERLAP):
        if name not in NOT_BOUNDS:
            value = getattr(options, name)
            word = ("on" if value else "off") if isinstance(value, bool) else value
            texts.append(f"{name}={word}")
    return constraints_of([*texts, *(options.fix or ())])


def limits_of(options: SharedOptions) -> Limits | None:
    """What every policy of a search has alike; None: nothing is stated."""
    limits = Limits(
        loss=options.loss or "",
        recompute_modules=modules_of(options.recompute_modules),
        offload_share=1.0 if options.offload_share is None else options.offload_share,
        micro_batch=max(options.micro or 1, Limits().micro_batch),
    )
    return None if limits == Limits() else limits


def check_inside(policy: Policy, text: str, only: tuple[Constraint, ...], limits: Limits | None) -> None:
    """A policy in words that the bounds of its question do not allow is a mistake, not an answer."""
    broken = [bound.text for bound in only if not bound.accepts(encoded(policy, bound.field))]
    for name in ("loss", "recompute_modules", "offload_share"):
        wanted = getattr(limits or Limits(), name)
        if wanted not in (getattr(Limits(), name), getattr(policy, name)):
            broken.append(f"--{name.replace('_', '-')}")
    if broken:
        raise ValueError(f"policy: {text!r} is not inside {', '.join(broken)}; write it in the policy, or leave it out")


def modules_of(text: str | None) -> tuple[str, ...]:
    """'layernorm,moe_act' as a policy has it; unknown names are refused there."""
    return tuple(dict.fromkeys(word.strip() for word in (text or "").split(",") if word.strip()))
