"""Of a policy that does not fit: those next to it that do, and what each costs.

One setting is changed, or where that is not enough two or three: recompute, ZeRO, offload, the micro-batch, or a
degree that takes its GPUs from data parallelism.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from msgspec.structs import replace

from shardwise.spec.policy import COPY, OFFLOAD, RECOMPUTE, ZERO, Policies, Policy
from shardwise.spec.rules import legal
from shardwise.spec.software.limits import LIMITS, as_run, broken_by
from shardwise.step.estimate.closed_form import estimate
from shardwise.step.estimate.synced import allowed_with, choice_of
from shardwise.work.case import Case

MOST_CHANGES = 3
SHOWN = 4
BEARABLE = 0.1
"""a step so much longer; where every way costs more, one change more is tried"""
WIDER = (2, 4, 8)
"""times the degree"""
PARTS = 8
"""of a stage's layers, in which their recompute is tried"""
Change = tuple[str, dict[str, Any]]
"""what it is about, and the fields it sets"""


@dataclass(frozen=True)
class PolicyThatFits:
    policy: Policy
    changed: tuple[str, ...]
    """fields that differ, data parallelism aside"""
    step_s: float
    peak_bytes: float


Fitting = dict[tuple[str, ...], PolicyThatFits]
"""by what was changed"""


def policies_that_fit(case: Case, policy: Policy, *, most: int = SHOWN) -> list[PolicyThatFits]:
    """With as few changes as are enough, the fastest of each way, and of one change more what is faster still where all
    cost much; the fastest first. Empty: none within three changes."""
    bearable = (1.0 + BEARABLE) * float(estimate(case, Policies.of([policy])).times.step_s[0])
    found: Fitting = {}
    for count in range(1, MOST_CHANGES + 1):
        enough = bool(found)
        more = _fitting(case, policy, list(_changed(case, policy, count)))
        found |= {names: each for names, each in more.items() if not _beaten(names, each, found)}
        if enough or any(each.step_s <= bearable for each in found.values()):
            break
    return sorted(found.values(), key=lambda each: each.step_s)[:most]


def _beaten(names: tuple[str, ...], each: PolicyThatFits, found: Fitting) -> bool:
    """By a part of the same changes."""
    return any(set(few) <= set(names) and other.step_s <= each.step_s for few, other in found.items())


def _fitting(case: Case, policy: Policy, tried: list[tuple[tuple[str, ...], Policy]]) -> Fitting:
    """The fastest that fits, by what was changed."""
    columns = Policies.of([each for _, each in tried])
    ok = legal(case.model, case.cluster, case.job, columns)
    sync = choice_of(policy.sync, case.job.optimizer.name)
    if sync is not None:
        ok &= allowed_with(sync, case.model, case.job, columns)
    index = np.flatnonzero(ok)
    if not len(index):
        return {}
    priced = estimate(case, columns.take(index), sync=sync)
    found: Fitting = {}
    held = priced.memory.host_bytes <= case.cluster.host_bytes_per_gpu
    for place in np.flatnonzero(priced.fits & held):
        changed, chosen = tried[int(index[place])]
        each = PolicyThatFits(chosen, changed, float(priced.times.step_s[place]), float(priced.memory.peak[place]))
        if changed not in found or each.step_s < found[changed].step_s:
            found[changed] = each
    return found


def _changed(case: Case, policy: Policy, count: int) -> Iterator[tuple[tuple[str, ...], Policy]]:
    """As the program runs them; what it cannot run in the policy itself was asked for by name."""
    beyond = broken_by(case.stack.abilities.limits, policy)
    limits = [name for name in case.stack.abilities.limits if LIMITS[name] not in beyond]
    for changes in combinations(list(_changes(case, policy)), count):
        names = tuple(name for name, _ in changes)
        wider = [fields for name, fields in changes if name in COPY]
        if len(set(names)) == count and len(wider) <= 1:
            changed = as_run(limits, replace(policy, **{k: v for _, fields in changes for k, v in fields.items()}))
            if not broken_by(limits, changed):
                yield names, changed


def _changes(case: Case, policy: Policy) -> Iterator[Change]:
    stack = case.stack.abilities
    stage = -(-case.model.layers // policy.pp)
    for recompute in (name for name in RECOMPUTE[1:] if name in stack.recompute):
        if recompute != policy.recompute or policy.recompute_layers >= 0:
            yield "recompute", {"recompute": recompute, "recompute_layers": -1, "recompute_modules": ()}
    if policy.recompute == "none" and "full" in stack.recompute:
        for layers in sorted({-(-stage * part // PARTS) for part in range(1, PARTS)} - {stage}):
            yield "recompute", {"recompute": "full", "recompute_layers": layers}
    allowed = stack.zero_with_stages if policy.pp > 1 else max(ZERO)
    for zero in (z for z in stack.zero if policy.zero < z <= allowed):
        yield "zero", {"zero": zero}
    if policy.shard_group:
        yield "shard_group", {"shard_group": 0}
    if policy.micro_batch > 1:
        for micro in (2**i for i in range(policy.micro_batch.bit_length()) if 2**i < policy.micro_batch):
            yield "micro_batch", {"micro_batch": micro}
    for offload in (name for name in OFFLOAD if name in stack.offload and name not in ("none", policy.offload)):
        yield "offload", {"offload": offload}
    for axis in COPY:
        for factor in (f for f in WIDER if policy.dp % f == 0):
            wide = getattr(policy, axis) * factor
            shared = case.model.inputs != "features" and case.job.seq // policy.cp % wide == 0
            sp = {"sp": True} if axis == "tp" and policy.tp == 1 and shared else {}
            yield axis, {axis: wide, "dp": policy.dp // factor, **sp}
