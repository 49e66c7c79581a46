"""Which policies can run at all. A policy that cannot is a Verdict: rule, numbers, nearest one that can.

Each rule checks columns of policies at once, so one policy and a million go through the same code. The planner, the
searches and the runtime all ask here; what one program cannot do besides is said where that program is.
"""

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from shardwise.arrays import Flags
from shardwise.plugins.pipeline import needs, refusal, schedule_names, usual_schedule
from shardwise.spec.cluster import Cluster
from shardwise.spec.job import Job
from shardwise.spec.matrices import explain_layout, explain_shares, has_layout, shares_matrices
from shardwise.spec.model import Experts, Model
from shardwise.spec.policy import COPY, MODULES, ORDERS, Policies, Policy, expert_tp, module_bits

SHARED_MATRICES = "shared matrices"
STAGES_OUTERMOST = tuple(code for code, order in enumerate(ORDERS) if order.endswith("pp"))
Check = Callable[[Model, int, Job, Policies], Flags]
"""(model, GPUs, job, policies)"""
Explain = Callable[[Model, int, Job, Policy], str]


class Rule(Struct, frozen=True, kw_only=True):
    name: str
    check: Check
    """true where the policy obeys"""
    explain: Explain
    """the numbers of a policy that does not"""


class Verdict(Struct, frozen=True, kw_only=True):
    legal: bool
    rule: str = ""
    why: str = ""
    cure: Policy | None = None
    """the nearest legal policy, when one exists on this cluster"""


def _experts(model: Model) -> Experts | None:
    return next((kind.experts for kind in model.kinds if kind.experts), None)


def _world(_: Model, gpus: int, __: Job, p: Policies) -> Flags:
    return np.asarray(p.dp * p.tp * p.pp * p.cp == gpus)


def _tp_heads(model: Model, _: int, __: Job, p: Policies) -> Flags:
    ok = np.ones(len(p), dtype=bool)
    for kind in model.kinds:
        if kind.attention is not None:
            heads, kv = kind.attention.heads, kind.attention.kv_heads
            ok &= (heads % p.tp == 0) & ((kv % p.tp == 0) | (p.tp % kv == 0))
            if kind.attention.compressed is not None:
                ok &= kind.attention.compressed.out_groups % p.tp == 0
    return ok


def _tp_width(model: Model, _: int, __: Job, p: Policies) -> Flags:
    ok = np.ones(len(p), dtype=bool)
    if model.inputs == "features":
        ok &= (model.hidden % p.tp == 0) & (model.vocab % p.tp == 0)
    for kind in model.kinds:
        if kind.feed_forward is not None:
            ok &= kind.feed_forward.width % p.tp == 0
        if kind.experts is not None:
            ok &= kind.experts.width % expert_tp(p) == 0
    return ok


def _tp_mixer(model: Model, _: int, __: Job, p: Policies) -> Flags:
    ok = np.ones(len(p), dtype=bool)
    for kind in model.kinds:
        if kind.mamba is not None:
            ok &= (kind.mamba.groups % p.tp == 0) & (kind.mamba.heads % (p.tp * p.cp) == 0)
        if kind.delta is not None:
            ok &= (kind.delta.key_heads % (p.tp * p.cp) == 0) & (kind.delta.value_heads % (p.tp * p.cp) == 0)
    return ok


def _stages(model: Model, _: int, __: Job, p: Policies) -> Flags:
    # embedding and head may have a stage of their own
    return np.asarray(p.pp * p.vpp <= model.layers + 2)


def _batch(_: Model, __: int, job: Job, p: Policies) -> Flags:
    return np.asarray((job.global_batch % (p.dp * p.micro_batch * _passes(job, p.pp)) == 0) | job.uneven)


def _passes(job: Job, pp: Any) -> Any:
    return np.where(np.greater(pp, 1), job.pipeline_passes, 1)


def _micro_batches(job: Job, pp: Any, dp: Any, micro_batch: Any) -> Any:
    """Of one pass through the pipeline."""
    at_once = np.maximum(dp * micro_batch, 1) * _passes(job, pp)
    return -(-job.global_batch // at_once) if job.uneven else job.global_batch // at_once


def _chunks(_: Model, __: int, job: Job, p: Policies) -> Flags:
    micro_batches = _micro_batches(job, p.pp, p.dp, p.micro_batch)
    ok = np.ones(len(p), dtype=bool)
    for code in np.flatnonzero(np.bincount(p.schedule)):
        met = needs()[schedule_names()[code]].met
        ok &= (p.schedule != code) | met(p.pp, p.vpp, micro_batches)
    return ok


def context_divides(seq: int, cp: Any) -> Any:
    """A causal sequence is dealt out in 2 x cp pieces so that every rank has as much to do."""
    return np.equal(cp, 1) | np.equal(seq % (2 * cp), 0)


def _context(_: Model, __: int, job: Job, p: Policies) -> Flags:
    return np.asarray(context_divides(job.seq, p.cp))


def _sequence(_: Model, __: int, job: Job, p: Policies) -> Flags:
    return np.asarray((p.sp == 0) | (p.tp == 1) | ((job.seq // np.maximum(p.cp, 1)) % p.tp == 0))


def _expert(model: Model, _: int, __: Job, p: Policies) -> Flags:
    experts = _experts(model)
    if experts is None:
        return np.asarray((p.ep == 1) & (p.etp <= 1))
    return np.asarray((experts.count % p.ep == 0) & (p.dp * p.cp * p.tp % (p.ep * expert_tp(p)) == 0))


def _order(model: Model, _: int, __: Job, p: Policies) -> Flags:
    # expert groups run over the ranks of one stage, which must then be neighbours
    cut_alike = (p.ep == 1) & ((expert_tp(p) == p.tp) | (_experts(model) is None))
    return np.asarray(cut_alike | (p.pp == 1) | np.isin(p.order, STAGES_OUTERMOST))


def _shards(_: Model, __: int, ___: Job, p: Policies) -> Flags:
    return np.asarray((p.shard_group == 0) | (p.dp * p.cp % np.maximum(p.shard_group, 1) == 0))


def _repeat(model: Model, _: int, __: Job, p: Policies) -> Flags:
    return np.asarray(p.recompute_layers <= -(-model.layers // p.pp))


def _modules(model: Model, _: int, __: Job, p: Policies) -> Flags:
    if not p.recompute_modules.any():
        return np.ones(len(p), dtype=bool)
    return np.asarray((p.recompute_modules & module_bits(*absent_modules(model))) == 0)


def absent_modules(model: Model) -> tuple[str, ...]:
    """Modules that no layer of the model has."""
    kinds = model.kinds
    has = {
        "core_attn": any(k.attention for k in kinds),
        "mla_up_proj": any(k.attention and (k.attention.latent or k.attention.compressed) for k in kinds),
        "layernorm": any(k.norms for k in kinds),
        "moe_act": any(k.experts for k in kinds),
        "mlp": any(k.feed_forward for k in kinds),
        "moe": any(k.experts for k in kinds),
        "shared_experts": any(k.experts and k.experts.shared_width for k in kinds),
    }
    return tuple(name for name, there in has.items() if not there)


def _explain_modules(model: Model, _: int, __: Job, p: Policy) -> str:
    absent = absent_modules(model)
    wrong = ", ".join(name for name in p.recompute_modules if name in absent)
    return f"no layer has {wrong}; take {', '.join(name for name in MODULES if name not in absent)}"


def _explain_world(_: Model, gpus: int, __: Job, p: Policy) -> str:
    degrees = [f"{axis} {getattr(p, axis)}" for axis in COPY if getattr(p, axis) > 1]
    if gpus % (p.tp * p.pp * p.cp):
        return f"{' x '.join(degrees)} does not divide {gpus:,} GPUs"
    return f"{' x '.join([f'dp {p.dp}', *degrees])} = {p.gpus:,} ranks, the cluster has {gpus:,} GPUs"


def _explain_heads(model: Model, _: int, __: Job, p: Policy) -> str:
    found = [kind.attention for kind in model.kinds if kind.attention]
    attention = next((each for each in found if each.heads % p.tp), found[0])
    if (parts := attention.compressed) is not None:
        return f"tp {p.tp} must divide {attention.heads} heads and the {parts.out_groups} groups of their output"
    return f"tp {p.tp} must divide {attention.heads} heads, and tp and {attention.kv_heads} key/value heads one another"


def _explain_mixer(model: Model, _: int, __: Job, p: Policy) -> str:
    delta = next((kind.delta for kind in model.kinds if kind.delta), None)
    if delta is not None:
        return (
            f"tp x cp = {p.tp * p.cp} must divide {delta.key_heads} key heads and {delta.value_heads} value heads of "
            "the delta rule, which context parallelism exchanges for the sequence"
        )
    mamba = next(kind.mamba for kind in model.kinds if kind.mamba)
    return (
        f"tp {p.tp} must divide {mamba.groups} Mamba groups, and tp x cp = {p.tp * p.cp} its {mamba.heads} heads, "
        "which context parallelism exchanges for the sequence"
    )


def _explain_width(model: Model, _: int, __: Job, p: Policy) -> str:
    if model.inputs == "features":
        return f"tp {p.tp} must divide the widths, the first of {model.hidden} and the outputs, {model.vocab}, too"
    return f"tp {p.tp} (etp {p.etp}) does not divide the feed-forward width"


def _explain_batch(_: Model, __: int, job: Job, p: Policy) -> str:
    passes = int(_passes(job, p.pp))
    times = f" x {passes} passes through the pipeline" if passes > 1 else ""
    return (
        f"global batch {job.global_batch} is not a multiple of dp {p.dp} x micro-batch {p.micro_batch}{times} "
        f"= {p.dp * p.micro_batch * passes}"
    )


def _explain_chunks(_: Model, __: int, job: Job, p: Policy) -> str:
    return refusal(p.schedule, p.pp, p.vpp, int(_micro_batches(job, p.pp, p.dp, p.micro_batch)))


RULES: tuple[Rule, ...] = (
    Rule(
        name="world",
        check=_world,
        explain=_explain_world,
    ),
    Rule(
        name="tp divides heads",
        check=_tp_heads,
        explain=_explain_heads,
    ),
    Rule(
        name="tp divides groups",
        check=_tp_mixer,
        explain=_explain_mixer,
    ),
    Rule(
        name="tp divides width",
        check=_tp_width,
        explain=_explain_width,
    ),
    Rule(
        name="stages have layers",
        check=_stages,
        explain=lambda m, _, __, p: f"pp {p.pp} x vpp {p.vpp} = {p.pp * p.vpp} chunks for {m.layers} layers",
    ),
    Rule(
        name="batch divides",
        check=_batch,
        explain=_explain_batch,
    ),
    Rule(
        name="interleaving",
        check=_chunks,
        explain=_explain_chunks,
    ),
    Rule(
        name="cp divides the sequence",
        check=_context,
        explain=lambda _, __, j, p: f"sequence {j.seq} is not a multiple of 2 x cp = {2 * p.cp}",
    ),
    Rule(
        name="sequence parallel divides the sequence",
        check=_sequence,
        explain=lambda _, __, j, p: (
            f"sequence {j.seq} / cp {p.cp} is not a multiple of tp {p.tp}; or switch sequence parallelism off"
        ),
    ),
    Rule(
        name="expert parallel",
        check=_expert,
        explain=lambda m, _, __, p: (
            f"ep {p.ep} must divide {e.count} experts, and ep x etp must divide dp x cp x tp = {p.dp * p.cp * p.tp}"
            if (e := _experts(m))
            else f"ep {p.ep}, etp {p.etp}: the model has no experts"
        ),
    ),
    Rule(
        name="order",
        check=_order,
        explain=lambda _, __, ___, p: (
            f"order {p.order} spreads a stage over the fabric, and ep {p.ep}, etp {p.etp} needs its ranks together; "
            f"take {' or '.join(ORDERS[code] for code in STAGES_OUTERMOST)}"
        ),
    ),
    Rule(
        name="shard group",
        check=_shards,
        explain=lambda _, __, ___, p: f"shard_group {p.shard_group} does not divide dp x cp = {p.dp * p.cp}",
    ),
    Rule(
        name="recompute layers",
        check=_repeat,
        explain=lambda m, _, __, p: (
            f"recompute_layers {p.recompute_layers} but a stage has {-(-m.layers // p.pp)} layers"
        ),
    ),
    Rule(
        name="matrix layout",
        check=has_layout,
        explain=explain_layout,
    ),
    Rule(
        name=SHARED_MATRICES,
        check=shares_matrices,
        explain=explain_shares,
    ),
    Rule(
        name="recompute modules",
        check=_modules,
        explain=_explain_modules,
    ),
)


def legal(model: Model, cluster: Cluster, job: Job, policies: Policies, *, skip: tuple[str, ...] = ()) -> Flags:
    ok = np.ones(len(policies), dtype=bool)
    for rule in RULES:
        if rule.name not in skip:
            ok &= rule.check(model, cluster.gpus, job, policies)
    return ok


def verdict_of(model: Model, cluster: Cluster, job: Job, policy: Policy, *, cure: bool = True) -> Verdict:
    """The first rule a policy breaks, with its numbers and the nearest legal policy."""
    broken = _broken(model, cluster.gpus, job, policy)
    if broken is None:
        return Verdict(legal=True)
    near = nearest_legal(model, cluster, job, policy) if cure else None
    return Verdict(legal=False, rule=broken.name, why=broken.explain(model, cluster.gpus, job, policy), cure=near)


def split_refusal(model: Model, job: Job, policy: Policy) -> str:
    """Why a model cannot be split so, on however many GPUs that takes; empty: it can."""
    broken = _broken(model, policy.gpus, job, policy)
    return "" if broken is None else broken.explain(model, policy.gpus, job, policy)


def _broken(model: Model, gpus: int, job: Job, policy: Policy) -> Rule | None:
    columns = Policies.of([policy])
    return next((rule for rule in RULES if not rule.check(model, gpus, job, columns)[0]), None)


def divisors(number: int) -> list[int]:
    small = [d for d in range(1, int(number**0.5) + 1) if number % d == 0]
    return sorted({*small, *(number // d for d in small)})


def nearest_legal(model: Model, cluster: Cluster, job: Job, policy: Policy) -> Policy | None:
    """The legal policy that changes the degrees least (sum of |log2| ratios); other fields stay where they can."""
    gpus = divisors(cluster.gpus)
    experts = _experts(model)
    micros = sorted({policy.micro_batch, *(d for d in divisors(job.global_batch) if d <= 64)})
    rows = [
        (tp, pp, cp, cluster.gpus // (tp * pp * cp), vpp, ep, micro)
        for tp, pp, cp in product([d for d in gpus if d <= 64], [d for d in gpus if d <= model.layers + 2], gpus[:8])
        if cluster.gpus % (tp * pp * cp) == 0
        for vpp in sorted({1, policy.vpp})
        for ep in ([1] if experts is None else sorted({1, policy.ep, *divisors(experts.count)}))
        for micro in micros
    ]
    if not rows:
        return None
    table = np.array(rows, dtype=np.int64)
    tp, pp, cp, dp, vpp, ep, micro = table.T
    code = schedule_names().index
    usual = np.where(vpp > 1, code(usual_schedule(2)), code(usual_schedule(1)))
    kept = needs()[policy.schedule].met(pp, vpp, _micro_batches(job, pp, dp, micro))
    columns = Policies.columns(
        len(table), tp=tp, pp=pp, cp=cp, dp=dp, vpp=vpp, ep=ep, micro_batch=micro,
        schedule=np.where(kept, code(policy.schedule), usual),
        sp=np.full(len(table), int(policy.sp)), zero=np.full(len(table), policy.zero),
    )  # fmt: skip
    ok = np.flatnonzero(legal(model, cluster, job, columns))
    if not len(ok):
        return None
    wanted = np.array(
        [policy.tp, policy.pp, policy.cp, policy.dp, policy.vpp, policy.ep, policy.micro_batch], dtype=np.float64
    )
    # data parallelism is what is left over, so it may change more easily than what the user chose
    weight = np.array([1.0, 1.0, 1.0, 0.5, 1.0, 1.0, 1.0])
    distance = np.abs(np.log2(table[ok] / wanted)) @ weight
    near = replace_degrees(policy, columns[int(ok[np.argmin(distance)])])
    return near if _broken(model, cluster.gpus, job, near) is None else replace(near, matrix_layout="")


def replace_degrees(policy: Policy, degrees: Policy) -> Policy:
    """`policy` with the degrees of another, and nothing that its rules might refuse."""
    return replace(
        policy, tp=degrees.tp, pp=degrees.pp, cp=degrees.cp, dp=degrees.dp, vpp=degrees.vpp, ep=degrees.ep, etp=0,
        micro_batch=degrees.micro_batch, schedule=degrees.schedule, shard_group=0, recompute_layers=-1,
        recompute_modules=(), order=degrees.order,
    )  # fmt: skip
