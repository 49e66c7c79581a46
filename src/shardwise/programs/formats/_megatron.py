"""Megatron-Core's names of settings, which Megatron-LM, Megatron-Bridge, Primus and verl share: policy <-> settings."""

from dataclasses import dataclass
from functools import partial
from typing import Any

from shardwise.plugins.optimizers import read_from, spelling_in
from shardwise.plugins.optimizers.muon import STEPS as MUON_STEPS
from shardwise.plugins.optimizers.soap import EVERY as SOAP_EVERY
from shardwise.programs.formats._contract import Format, Found, Known, Lack, Launch, split_axes
from shardwise.programs.formats._layout import chunks_of, is_even, layout_text
from shardwise.programs.formats._megatron_stages import stages
from shardwise.programs.formats._settings import FileSettings
from shardwise.spec.policy import MODULES, ORDERS, Policy
from shardwise.spec.software.dispatcher import DISPATCH

STAGES_LAST = "tp-cp-dp-pp"
STAGES_INSIDE = "tp-cp-pp-dp"
"""the two ways of laying ranks; the second with use_tp_pp_dp_mapping"""
SHARDING = {"no_shard": 0, "optim": 1, "optim_grads": 2, "optim_grads_params": 3}
CONTEXT = {"ring": "p2p", "ulysses": "a2a", "gather": "allgather"}
"""how keys and values are exchanged: the program's settings, not a policy's"""
DISPATCHERS = {"copies": "alltoall", "once": "flex", "gather": "allgather"}
PRECISIONS: dict[str, dict[str, Any]] = {
    "bf16": {"bf16": True},
    "bf16-grad16": {"bf16": True, "grad_reduce_in_bf16": True},
    "fp16": {"fp16": True},
    "fp16-grad32": {"fp16": True, "accumulate_allreduce_grads_in_fp32": True},
    **{
        f"{name}-{grad}": {"bf16": True, "fp8_format": "hybrid", "fp8_recipe": recipe, **reduced}
        for name, recipe in (("fp8", "tensorwise"), ("fp8-blockwise", "blockwise"), ("mxfp8", "mxfp8"))
        for grad, reduced in (("grad32", {}), ("grad16", {"grad_reduce_in_bf16": True}))
    },
    "fp4-grad32": {"bf16": True, "fp4_format": "e2m1", "fp4_recipe": "nvfp4"},
    "fp4-grad16": {"bf16": True, "fp4_format": "e2m1", "fp4_recipe": "nvfp4", "grad_reduce_in_bf16": True},
    "fp32": {},
}
SCALED_FP8 = {"blockwise": "fp8-blockwise", "mxfp8": "mxfp8"}
NEAR = {"fp8": "fp8-grad16", "fp8-blockwise": "fp8-blockwise-grad16", "mxfp8": "mxfp8-grad16", "fp4": "fp4-grad16"}
"""recipes that add up in fp32 and send bf16: the program does both in one dtype"""
MODULES_OF_OTHERS = ("gdn_norm_out", "gdp_in_proj", "gdp_qkv", "mhc")
"""what selective recompute can repeat in layers that no policy names"""

ONLY: dict[str, tuple[Any, ...]] = {
    "schedule": ("1f1b", "interleaved"), "offload": ("none", "optimizer"), "loss": ("plain", "fused"), "sync": ("",),
}  # fmt: skip
megatron_format = partial(Format, only=ONLY, own=lambda _version: {}, states=("context_parallel", "dispatcher"))
"""a target whose settings have Megatron's names: it states what they can"""


@dataclass(frozen=True)
class MegatronProgram:
    """In what the programs that share the names differ."""

    shards_parameters: bool = True
    """Megatron-FSDP can be switched on"""
    instances: bool = True
    """HSDP, as several instances of the distributed optimizer"""
    mapping: bool = True
    """stages inside of data parallelism"""


def gaps(program: MegatronProgram, launch: Launch) -> list[Lack]:
    policy, found = launch.policy, list[Lack]()
    fsdp = policy.zero >= 2
    if fsdp and not program.shards_parameters:
        found.append(Lack("zero", policy.zero, "it states zero 0 and 1 only"))
    if fsdp and launch.case.job.optimizer.name not in ("adamw", "adam", "sgd", "sgd-m"):
        # training/arguments.py (2026-08)
        why = f"Megatron-LM has no FSDP with {launch.case.job.optimizer.name}"
        found.append(Lack("zero", policy.zero, why, {"zero": 1}))
    if fsdp and policy.pp > 1:
        found.append(Lack("zero", policy.zero, "with pipeline stages it is 0 or 1 here"))
    if policy.shard_group and not program.instances:
        found.append(Lack("shard_group", policy.shard_group, "it shards over all data-parallel ranks"))
    if _order(policy, program) is None:
        found.append(Lack("order", policy.order, f"ranks are laid {STAGES_LAST}"))
    found += _recompute_gaps(policy)
    return found


def _recompute_gaps(policy: Policy) -> list[Lack]:
    if policy.recompute == "selective" and policy.recompute_layers >= 0:
        return [Lack("recompute_layers", policy.recompute_layers, "selective recompute is of every layer")]
    if policy.recompute == "full" and policy.recompute_layers == 0:
        why = "no layers are none: recompute is none"
        return [Lack("recompute_layers", 0, why, {"recompute": "none", "recompute_layers": -1})]
    return []


def _order(policy: Policy, program: MegatronProgram) -> bool | None:
    """Whether stages lie inside of data parallelism; None: some other way."""
    lies = split_axes(policy, policy.order)
    if lies == split_axes(policy, STAGES_LAST):
        return False
    return True if program.mapping and lies == split_axes(policy, STAGES_INSIDE) else None


def parallel_settings(launch: Launch, program: MegatronProgram) -> dict[str, Any]:
    """How the work is split; false and absent are the same."""
    policy, model = launch.policy, launch.case.model
    chunks = chunks_of(launch)
    found: dict[str, Any] = {
        "tensor_model_parallel_size": policy.tp,
        "sequence_parallel": policy.sp and policy.tp > 1,
        "pipeline_model_parallel_size": policy.pp,
        "context_parallel_size": policy.cp,
    }
    if not is_even(chunks):
        found["pipeline_model_parallel_layout"] = layout_text(chunks, model.mtp_layers)
    elif policy.vpp > 1:
        found["virtual_pipeline_model_parallel_size"] = policy.vpp
    if policy.cp > 1:
        found["cp_comm_type"] = CONTEXT[launch.case.stack.abilities.context_parallel]
    if any(kind.experts for kind in model.kinds):
        found["expert_model_parallel_size"] = policy.ep
        found["expert_tensor_parallel_size"] = policy.etp or (1 if policy.ep > 1 else policy.tp)
        found["moe_token_dispatcher_type"] = DISPATCHERS[launch.case.stack.experts.dispatch]
    if _order(policy, program):
        found["use_tp_pp_dp_mapping"] = True
    found["use_distributed_optimizer"] = policy.zero >= 1 or policy.offload != "none"
    if policy.zero >= 2:
        found["use_megatron_fsdp"] = True
        found["data_parallel_sharding_strategy"] = {v: k for k, v in SHARDING.items()}[policy.zero]
        found["ckpt_format"] = "fsdp_dtensor"
    if policy.shard_group:
        found["num_distributed_optimizer_instances"] = policy.dp * policy.cp // policy.shard_group
    found |= {
        "overlap_grad_reduce": policy.overlap_grad,
        "overlap_param_gather": policy.overlap_param,
        "tp_comm_overlap": policy.overlap_tp,
    }
    if policy.pp > 1 and policy.vpp > 1:
        found["overlap_p2p_comm"] = policy.overlap_pp
    return found | _recompute(policy) | _offload(policy)


def _recompute(policy: Policy) -> dict[str, Any]:
    if policy.recompute == "none":
        return {}
    if policy.recompute == "selective":
        chosen = {"recompute_modules": list(policy.recompute_modules)} if policy.recompute_modules else {}
        return {"recompute_granularity": "selective", **chosen}
    if policy.recompute_layers < 0:
        return {"recompute_granularity": "full", "recompute_method": "uniform", "recompute_num_layers": 1}
    return {
        "recompute_granularity": "full", "recompute_method": "block",
        "recompute_num_layers": policy.recompute_layers // policy.vpp,
    }  # fmt: skip


def _offload(policy: Policy) -> dict[str, Any]:
    if policy.offload == "none":
        return {}
    # the program's checks ask for the precision-aware optimizer, whose code it takes
    return {
        "optimizer_cpu_offload": True, "optimizer_offload_fraction": policy.offload_share,
        "use_precision_aware_optimizer": True,
    }  # fmt: skip


def batch_settings(launch: Launch) -> dict[str, Any]:
    return {
        "micro_batch_size": launch.policy.micro_batch, "global_batch_size": launch.case.job.global_batch,
        "seq_length": launch.case.job.seq,
    }  # fmt: skip


def numeric_settings(launch: Launch) -> dict[str, Any]:
    """Precision, optimizer, attention, loss."""
    job, policy = launch.case.job, launch.policy
    precision = NEAR.get(job.precision.name, job.precision.name)
    if precision not in PRECISIONS:
        known = ", ".join([*PRECISIONS, *NEAR])
        raise ValueError(f"precision: {precision} cannot be stated in Megatron's settings; write one of {known}")
    found: dict[str, Any] = {**PRECISIONS[precision], "optimizer": spelling_in("megatron", job.optimizer.name)}
    if job.optimizer.name == "muon":
        # 0.2 of the root of the longer side: AdamW's rates serve
        found |= {"muon_scale_mode": "spectral", "muon_extra_scale_factor": 0.2}
        if policy.tp > 1:
            found["muon_tp_mode"] = "blockwise" if policy.matrix_layout == "blockwise" else "duplicated"
    if job.optimizer.name == "soap":
        # Megatron renews bases in every step by itself
        found["soap_precondition_frequency"] = SOAP_EVERY
    found["attention_backend"] = "flash" if policy.attention == "flash" else "unfused"
    if policy.loss == "fused":
        found |= {"cross_entropy_loss_fusion": True, "cross_entropy_fusion_impl": "native"}
    return found


def arguments(launch: Launch, program: MegatronProgram) -> tuple[dict[str, Any], dict[str, Any]]:
    """How the work is split; batch and numbers: under the names of pretrain_gpt.py's arguments."""
    parallel = parallel_settings(launch, program)
    if (chunks := parallel.pop("virtual_pipeline_model_parallel_size", None)) is not None:
        parallel["num_virtual_stages_per_pipeline_rank"] = chunks
    return parallel, batch_settings(launch) | numeric_settings(launch)


def read(settings: FileSettings, known: Known, defaults: dict[str, Any] | None = None) -> Found:
    """From settings under Megatron's own names; `defaults`: what the program has where a setting is absent."""
    own = {"sequence_parallel": False, "use_distributed_optimizer": False, "overlap_grad_reduce": False,
           "overlap_param_gather": False, "tp_comm_overlap": False, "overlap_p2p_comm": True}  # fmt: skip
    own |= {"moe_token_dispatcher_type": ""} | (defaults or {})
    notes, beyond = list[str](), list[str]()
    tp, pp = settings.whole("tensor_model_parallel_size"), settings.whole("pipeline_model_parallel_size")
    cp = settings.whole("context_parallel_size")
    ep = settings.whole(settings.first("moe_expert_parallel_size") or "expert_model_parallel_size")
    replica = tp * pp * cp
    gpus = known.gpus
    if gpus is None:
        notes.append("the file does not say how many GPUs: one replica is assumed")
    dp = max((gpus or replica) // replica, 1)
    layers, vpp = stages(settings, known, pp)
    zero, shard_group = _sharding(settings, own, dp * cp)
    optimizer = _read_optimizer(settings)
    blockwise = optimizer == "muon" and _read_muon(settings, beyond) and tp > 1
    if optimizer == "soap" and (every := settings.whole("soap_precondition_frequency", 1)) != SOAP_EVERY:
        beyond.append(f"soap_precondition_frequency {every}: priced as {SOAP_EVERY}")
    recompute = _read_recompute(settings, vpp, notes)
    overlap_grad = settings.flag("overlap_grad_reduce", own["overlap_grad_reduce"])
    offload = settings.flag("optimizer_cpu_offload")
    settings.flag("use_precision_aware_optimizer")
    inside = settings.flag("use_tp_pp_dp_mapping")
    fields: dict[str, Any] = {
        "dp": dp, "tp": tp, "pp": pp, "vpp": vpp, "cp": cp, "ep": ep,
        "etp": settings.whole("expert_tensor_parallel_size", tp if ep > 1 else 0),
        "sp": settings.flag("sequence_parallel", own["sequence_parallel"]) and tp > 1,
        "zero": zero, "shard_group": shard_group, "matrix_layout": "blockwise" if blockwise else "",
        "micro_batch": settings.whole("micro_batch_size"),
        "schedule": "interleaved" if vpp > 1 else "1f1b",
        "overlap_grad": overlap_grad,
        "overlap_param": settings.flag("overlap_param_gather", own["overlap_param_gather"]),
        "overlap_tp": settings.flag("tp_comm_overlap", own["tp_comm_overlap"]),
        "overlap_pp": vpp > 1 and settings.flag("overlap_p2p_comm", own["overlap_p2p_comm"])
        and not settings.flag("no_overlap_p2p_communication"),
        "attention": "plain" if settings.text("attention_backend") in ("unfused", "local") else "flash",
        "loss": "fused" if settings.flag("cross_entropy_loss_fusion") else "plain",
        "offload": "optimizer" if offload else "none",
        "offload_share": max(round(settings.number("optimizer_offload_fraction", 1.0), 3), 0.001) if offload else 1.0,
        "order": _read_order(Policy(dp=dp, tp=tp, pp=pp, cp=cp), inside, beyond), **recompute,
    }  # fmt: skip
    seq = settings.whole_or_none("seq_length")
    return Found(
        policy=Policy(**fields), gpus=gpus, seq=seq, global_batch=settings.whole_or_none("global_batch_size"),
        precision=_read_precision(settings), layers=layers, optimizer=optimizer,
        software=_software(settings, own, cp, ep, beyond), notes=tuple(notes), not_modelled=tuple(beyond),
    )  # fmt: skip


def _software(settings: FileSettings, own: dict[str, Any], cp: int, ep: int, beyond: list[str]) -> dict[str, Any]:
    """How tokens travel to experts and keys to queries, where that is done at all."""
    found: dict[str, Any] = {}
    kinds = {word: kind for kind, word in CONTEXT.items()}
    stated = settings.words("cp_comm_type")
    if cp > 1 and stated:
        if len(set(stated)) > 1 or stated[0] not in kinds:
            beyond.append(f"cp_comm_type {' '.join(stated[:4])}: priced as keys and values sent round")
        found["context_parallel"] = kinds.get(stated[0], "ring") if len(set(stated)) == 1 else "ring"
    deep = settings.flag("moe_enable_deepep") or settings.flag("use_turbo_deepep")
    settings.text("moe_flex_dispatcher_backend")
    name = settings.text("moe_token_dispatcher_type", own["moe_token_dispatcher_type"])
    name = "flex" if deep else name.removesuffix("_seq")
    if ep > 1 and name:
        if name not in DISPATCH:
            raise settings.refuse("moe_token_dispatcher_type", f"one of {', '.join(DISPATCH)}")
        found["dispatcher"] = name
    return found


def _sharding(settings: FileSettings, own: dict[str, Any], ranks: int) -> tuple[int, int]:
    zero = int(settings.flag("use_distributed_optimizer", own["use_distributed_optimizer"]))
    # an older name of muon under the distributed optimizer
    zero = 1 if settings.text("optimizer") == "dist_muon" else zero
    strategy = settings.choice("data_parallel_sharding_strategy", SHARDING, 3)
    if settings.flag("use_megatron_fsdp") or settings.flag("use_custom_fsdp"):
        zero = strategy
    elif settings.flag("use_torch_fsdp2"):
        zero = 3
    elif settings.has("zero_stage"):
        # Megatron-DeepSpeed; its optimizer for bf16 shares states out by itself
        zero = max(settings.whole("zero_stage", least=0), int(settings.flag("bf16")))
    instances = settings.whole("num_distributed_optimizer_instances")
    if ranks % instances:
        raise settings.refuse("num_distributed_optimizer_instances", f"a divisor of {ranks} data-parallel ranks")
    return zero, ranks // instances if instances > 1 else 0


def _read_recompute(settings: FileSettings, vpp: int, notes: list[str]) -> dict[str, Any]:
    kind = settings.choice("recompute_granularity", {"full": "full", "selective": "selective"}, "")
    if settings.flag("recompute_activations"):
        kind = "selective"
    old = settings.text("activations_checkpoint_method") not in ("", "None")
    if settings.flag("checkpoint_activations") or settings.flag("deepspeed_activation_checkpointing") or (
        old and not kind
    ):  # fmt: skip
        kind = "full"  # as the settings were called until 2022
    modules = settings.words("recompute_modules")
    if kind == "selective":
        known = tuple(name for name in MODULES if name in modules)
        other = [name for name in modules if name not in MODULES]
        if unknown := [name for name in other if name not in MODULES_OF_OTHERS]:
            wanted = ", ".join((*MODULES, *MODULES_OF_OTHERS))
            raise settings.refuse("recompute_modules", f"some of {wanted} (not {unknown[0]})")
        if other:
            notes.append(f"recompute of {', '.join(other)} is not modelled")
        return {"recompute": "selective", "recompute_modules": known}
    if kind == "full":
        way, number = ("activations_checkpoint_method", "activations_checkpoint_num_layers") if old else (
            "recompute_method", "recompute_num_layers")  # fmt: skip
        block = settings.choice(way, {"block": True, "uniform": False}, False)
        count = settings.whole(number, 1, least=0)
        if block and not count:
            return {"recompute": "none"}
        return {"recompute": "full", "recompute_layers": count * vpp if block else -1}
    return {"recompute": "none"}


def _read_order(policy: Policy, inside: bool, beyond: list[str]) -> str:
    wanted = split_axes(policy, STAGES_INSIDE if inside else STAGES_LAST)
    match = next((order for order in ORDERS if split_axes(policy, order) == wanted), None)
    if match is None:
        near, far = policy.tp * policy.cp, policy.tp * policy.cp * policy.dp
        beyond.append(
            f"use_tp_pp_dp_mapping: ranks laid {STAGES_INSIDE} are priced as {ORDERS[0]}: neighbouring stages are "
            f"{near} ranks apart and not {far}, replicas {near * policy.pp} and not {near}"
        )
    return match or ORDERS[0]


def _read_precision(settings: FileSettings) -> str:
    bf16, fp16 = settings.flag("bf16"), settings.flag("fp16")
    fp8 = SCALED_FP8.get(settings.text("fp8_recipe"), "fp8")
    low = fp8 if settings.has("fp8_format") or settings.has("fp8") else ""
    low = "fp4" if settings.has("fp4_format") or settings.has("fp4") else low
    for name in ("fp8_format", "fp8", "fp4_format", "fp4", "fp4_recipe"):
        settings.text(name)
    reduced = settings.flag("grad_reduce_in_bf16")
    wide = settings.flag("accumulate_allreduce_grads_in_fp32")
    if low:
        return f"{low}-grad16" if reduced else f"{low}-grad32"
    if fp16:
        return "fp16-grad32" if wide else "fp16"
    return ("bf16-grad16" if reduced else "bf16") if bf16 else ""


def _read_optimizer(settings: FileSettings) -> str:
    return read_from("megatron", settings.text("optimizer"))


def _read_muon(settings: FileSettings, beyond: list[str]) -> bool:
    """Whether pieces of tensor parallelism are orthogonalised as they are, which is Megatron's default (OptimizerConfig
    in core/optimizer/optimizer_config.py). Rates and scales do not change a step."""
    for name in ("muon_scale_mode", "muon_extra_scale_factor", "muon_momentum", "muon_nesterov", "muon_no_split_qkv"):
        settings.text(name)
    mode, steps = settings.text("muon_tp_mode"), settings.whole("muon_num_ns_steps", MUON_STEPS)
    if mode == "distributed":
        beyond.append("muon_tp_mode distributed: priced as duplicated, which gathers pieces and repeats their products")
    if settings.flag("muon_use_syrk"):
        beyond.append("muon_use_syrk: X X' is priced as a whole product")
    if steps != MUON_STEPS:
        beyond.append(f"muon_num_ns_steps {steps}: priced as {MUON_STEPS}")
    return mode in ("", "blockwise")
