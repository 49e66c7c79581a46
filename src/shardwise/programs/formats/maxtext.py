"""MaxText: its YAML; every axis is split once inside a node (ici) and once between nodes (dcn)."""

from math import gcd, prod
from typing import Any

from shardwise.plugins.optimizers import read_from, spelling_in
from shardwise.programs.formats._contract import Format, Found, Known, Lack, Launch, Written, own_overlaps
from shardwise.programs.formats._files import yaml_text
from shardwise.programs.formats._scripts import configured, host_gpus, network_environment
from shardwise.programs.formats._settings import FileSettings
from shardwise.programs.formats._sharding import degrees
from shardwise.spec.cluster import Cluster
from shardwise.spec.policy import Policy

STACK = "torchtitan"
"""no published run of MaxText on GPUs was fitted; the nearest is a compiled program that shards parameters"""
QUANTIZED = {"fp8": "fp8", "bf16": "", "fp32": ""}
CONTEXT = {"ring": "ring", "ulysses": "ulysses", "gather": "all_gather"}


def _own(_version: str) -> dict[str, Any]:
    return own_overlaps(STACK, "overlap_grad", "overlap_param", "overlap_tp")


def _joined(cluster: Cluster) -> int:
    """Chips that the fast links join, ici in MaxText's words: of TPUs a whole pod, of GPUs a host."""
    tori = [level.degree for level in cluster.levels if level.torus]
    return prod(tori) if tori else host_gpus(cluster)


def _split(launch: Launch) -> dict[str, tuple[int, int]] | None:
    """Axis -> (inside a node, between nodes); None where the axes do not fill nodes."""
    policy, each = launch.policy, _joined(launch.case.cluster)
    inside = min(each, policy.gpus)
    if inside % (policy.tp * policy.cp):
        return None
    left = inside // (policy.tp * policy.cp)
    data, fsdp = degrees(policy) if policy.zero == 3 else (policy.dp, 1)
    near_fsdp = gcd(fsdp, left)
    near_data = left // near_fsdp
    if data % near_data:
        return None
    tensor = "tensor_sequence" if policy.sp else "tensor"
    return {
        "fsdp": (near_fsdp, fsdp // near_fsdp), "data": (near_data, data // near_data), tensor: (policy.tp, 1),
        "context": (policy.cp, 1),
    }  # fmt: skip


def _gaps(launch: Launch) -> list[Lack]:
    policy, found, job = launch.policy, list[Lack](), launch.case.job
    if policy.zero == 3 and policy.shard_group and policy.shard_group % policy.cp:
        found.append(Lack("shard_group", policy.shard_group, f"ranks that share are a multiple of cp {policy.cp}"))
    elif _split(launch) is None:
        found.append(Lack("tp", policy.tp, "tensor and context parallelism stay inside a node that data fills evenly"))
    if policy.zero < 2 and policy.shard_group:
        found.append(Lack("shard_group", policy.shard_group, "optimizer states are shared over all replicas"))
    if policy.zero < 3 and policy.cp > 1:
        found.append(Lack("zero", policy.zero, "context-parallel ranks share parameters (zero 3)"))
    if policy.loss != launch.case.stack.loss.loss_kind:
        found.append(Lack("loss", policy.loss, "it has one"))
    if job.precision.compute not in QUANTIZED:
        raise ValueError(f"precision: {job.precision.name} is not written for MaxText; write bf16, fp8 or fp32")
    spelling_in("maxtext", job.optimizer.name)
    return found


def _write(launch: Launch) -> Written:
    policy, job, cluster = launch.policy, launch.case.job, launch.case.cluster
    split, tpu = _split(launch) or {}, cluster.gpu.tpu
    data: dict[str, Any] = {
        "base_config": "base.yml",  # the rules that map axes to devices are there only
        "model_name": launch.called or launch.case.model.name, "hardware": "tpu" if tpu else "gpu_multiprocess",
    }  # fmt: skip
    for place, name in enumerate(("ici", "dcn")):
        data |= {f"{name}_{axis}_parallelism": sizes[place] for axis, sizes in split.items()}
    data |= {
        "shard_optimizer_over_data": policy.zero == 1,
        "per_device_batch_size": policy.micro_batch / (policy.tp * policy.cp),
        "gradient_accumulation_steps": job.global_batch // (policy.dp * policy.micro_batch),
        "max_target_length": job.seq, "remat_policy": policy.recompute,
        "attention": "dot_product" if policy.attention != "flash" else "flash" if tpu else "cudnn_flash_te",
        "dtype": "float32" if job.precision.compute == "fp32" else "bfloat16",
        "quantization": QUANTIZED[job.precision.compute], "opt_type": spelling_in("maxtext", job.optimizer.name),
        "context_parallel_strategy": CONTEXT[launch.case.stack.abilities.context_parallel],
        "steps": 50, "dataset_type": "synthetic", "run_name": launch.case.model.name,
    }  # fmt: skip
    notes = (f"model_name: MaxText's own name for {data['model_name']}; data and steps stand in for yours",)
    launcher, file = "python3 -m maxtext.trainers.pre_train.train", "maxtext.yml"
    if tpu:
        heads = "".join(f"# {line}\n" for line in (*notes, *launch.comments, "start it on every host of the slice"))
        started = f'#!/usr/bin/env bash\n{heads}set -euo pipefail\n{launcher} {file} "$@"\n'
        return Written({file: yaml_text(data, notes), "train.sh": started}, {}, notes)
    environment = network_environment(cluster, launch.cards)
    return configured(launch, file, yaml_text(data, notes), file, [], environment, notes, launcher)


def _claims(settings: FileSettings) -> bool:
    return any(name.startswith(("ici_", "dcn_")) for name in settings.names()) or settings.has("per_device_batch_size")


def _read(settings: FileSettings, known: Known) -> Found:
    def stated(name: str, default: int) -> int:
        return settings.whole(f"{name}_parallelism", default, least=-1)

    sizes = {axis: (stated(f"ici_{axis}", 1), stated(f"dcn_{axis}", 1))
             for axis in ("tensor", "tensor_sequence", "context", "pipeline", "expert")}  # fmt: skip
    near, far = {axis: pair[0] for axis, pair in sizes.items()}, {axis: pair[1] for axis, pair in sizes.items()}
    near |= {"fsdp": stated("ici_fsdp", -1), "data": stated("ici_data", 1)}
    far |= {"fsdp": stated("dcn_fsdp", 1), "data": stated("dcn_data", -1)}
    notes = list[str]()
    each = next((degree for degree in (8, 4, 2, 1) if (known.gpus or 8) % degree == 0), 1)
    for axes, total in ((near, min(each, known.gpus or each)), (far, max((known.gpus or each) // each, 1))):
        given = 1
        for size in axes.values():
            given *= max(size, 1)
        for axis, size in axes.items():
            if size < 1:
                axes[axis] = max(total // given, 1)
                notes.append(f"{axis} is what is left of {total}: {axes[axis]}")
    total_of = {axis: near[axis] * far[axis] for axis in near}
    sequence = total_of["tensor_sequence"] > 1
    tp, cp = total_of["tensor"] * total_of["tensor_sequence"], total_of["context"]
    dp = total_of["fsdp"] * total_of["data"] * total_of["expert"]
    zero = 3 if total_of["fsdp"] * cp > 1 else int(settings.flag("shard_optimizer_over_data"))
    words = {"full": "full", "none": "none"}
    remat = settings.text("remat_policy", "full")
    if remat not in words:
        notes.append(f"remat_policy {remat} is taken as selective recompute")
    micro = settings.number("per_device_batch_size", 12.0) * tp * cp
    policy = Policy(
        dp=dp, tp=tp, cp=cp, pp=total_of["pipeline"], ep=total_of["expert"], sp=sequence, zero=zero,
        shard_group=total_of["fsdp"] * cp if zero == 3 and total_of["data"] > 1 else 0,
        micro_batch=max(round(micro), 1),
        recompute=words.get(remat, "selective"),
        attention="plain" if settings.text("attention") == "dot_product" else "flash", **_own(""),
    )  # fmt: skip
    low = settings.text("quantization")
    wide = settings.text("dtype", "bfloat16") == "float32"
    kinds = {word: kind for kind, word in CONTEXT.items()}
    kind = settings.choice("context_parallel_strategy", {**kinds, "usp": "ulysses"}, "gather")
    return Found(
        policy=policy, gpus=policy.gpus, seq=settings.whole_or_none("max_target_length"),
        global_batch=settings.whole("gradient_accumulation_steps") * policy.micro_batch * dp, notes=tuple(notes),
        precision="fp8" if "fp8" in low else "fp32" if wide else "bf16", 
        optimizer=read_from("maxtext", settings.text("opt_type", "adamw")),
        software={"context_parallel": kind} if cp > 1 else {},
    )  # fmt: skip


FORMAT = Format(
    name="maxtext", smoke="steps=3",
    title="MaxText",
    stack=STACK,
    source="AI-Hypercomputer/maxtext e591f30cb: src/maxtext/configs/base.yml, src/maxtext/layers/decoders.py",
    only={
        "pp": (1,), "ep": (1,), "etp": (0,), "zero": (0, 1, 3), "recompute": ("none", "full"), 
        "recompute_modules": ((),), "offload": ("none",), "order": ("tp-cp-dp-pp",), "sync": ("",),
    },
    states=("context_parallel",), limits=("all-layers-or-none", "products-beside-sequence"),
    own=_own, gaps=_gaps, write=_write, claims=_claims, read=_read,
)  # fmt: skip
