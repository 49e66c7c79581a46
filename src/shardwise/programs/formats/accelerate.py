"""Hugging Face accelerate: its YAML with FSDP2; batch and accumulation are arguments of the Trainer's script."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from shardwise.programs.formats._adapters import peft_targets
from shardwise.programs.formats._contract import Format, Found, Known, Lack, Launch, Written, own_overlaps
from shardwise.programs.formats._files import yaml_text
from shardwise.programs.formats._scripts import configured, network_environment, nodes_of
from shardwise.programs.formats._settings import FileSettings
from shardwise.programs.formats._sharding import degrees, gaps, read
from shardwise.programs.formats._smoke import TOY
from shardwise.programs.formats._trainer import TrainerNames, read_trainer
from shardwise.spec.policy import Policy

STACK = "torch-fsdp"
SIZES = "parallelism_config.parallelism_config_"
FIRST_FSDP = {"FULL_SHARD": 3, "SHARD_GRAD_OP": 2, "NO_SHARD": 0, "1": 3, "2": 2, "3": 0}
"""strategies of the first version of FSDP; hybrid ones share inside a node, whose size is not in the file"""
OF_TRL = ("max_length", "use_peft", "lora_r", "load_in_4bit")
"""arguments by which TRL's script is told from others of the Trainer"""
OF_PROGRAMS = ("model_name_or_path", "base_model", "model", "learning_rate", "num_train_epochs", "max_steps")
"""arguments of a training script that is started with the file"""
PRECISIONS = {"bf16": "bf16", "fp16": "fp16", "fp8": "fp8", "fp32": "no"}


ON_CPU = "without a GPU: --use_cpu behind it"
IN_SCRIPT = "the micro-batch is in the training script: 1 is assumed"


def _own(_version: str) -> dict[str, Any]:
    return own_overlaps(STACK, "overlap_grad", "overlap_param", "overlap_tp") | {"sp": True}


def gaps_of_file(launch: Launch) -> list[Lack]:
    policy, found = launch.policy, gaps(launch)
    if policy.recompute != "none" and policy.zero == 0:
        found.append(Lack("recompute", policy.recompute, "it is a setting of FSDP (zero 2 or 3)"))
    if policy.loss != launch.case.stack.loss.loss_kind:
        found.append(Lack("loss", policy.loss, "it is set in the training code"))
    if launch.case.job.precision.compute not in PRECISIONS:
        raise ValueError(
            f"precision: {launch.case.job.precision.name} has no name in accelerate's file; write one of "
            f"{', '.join(PRECISIONS)}"
        )
    return found


def gaps_of_program(launch: Launch) -> list[Lack]:
    """Of a program whose own switch recomputes without FSDP too, and whose optimizer is the Trainer's usual one."""
    name = launch.case.job.optimizer.name
    if name != "adamw":
        raise ValueError(f"optimizer: {name}, but adamw alone is written for programs on the Trainer; leave it out")
    return [lack for lack in gaps_of_file(launch) if lack.field != "recompute"]


def configuration(launch: Launch, recomputes: bool = True) -> dict[str, Any]:
    """The YAML file's contents. `recomputes`: whether FSDP's switch recomputes, and not the program's own."""
    policy, job = launch.policy, launch.case.job
    replicate, shard = degrees(policy)
    sizes: dict[str, Any] = {
        "dp_replicate_size": replicate, "dp_shard_size": shard, "tp_size": policy.tp, "cp_size": policy.cp,
    }  # fmt: skip
    if policy.cp > 1:
        gathers = launch.case.stack.abilities.context_parallel == "gather"
        sizes["cp_comm_strategy"] = "allgather" if gathers else "alltoall"
    data = {
        "compute_environment": "LOCAL_MACHINE", "distributed_type": "FSDP",
        "mixed_precision": PRECISIONS[job.precision.compute], "num_machines": nodes_of(launch.case.cluster),
        "num_processes": policy.gpus, "machine_rank": 0, "main_process_ip": "localhost", "main_process_port": 29500,
        "rdzv_backend": "static", "same_network": True, "main_training_function": "main", "use_cpu": False,
        "fsdp_config": {
            "fsdp_version": 2, "fsdp_reshard_after_forward": policy.zero != 2,
            "fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
            "fsdp_activation_checkpointing": recomputes and policy.recompute == "full", "fsdp_offload_params": False,
            "fsdp_state_dict_type": "SHARDED_STATE_DICT",
            # weights of 4 bits have another shape on the rank that quantises them than on those that wait for them
            "fsdp_cpu_ram_efficient_loading": job.tuning is None or not job.tuning.base,
        },
        "parallelism_config": {f"parallelism_config_{name}": value for name, value in sizes.items()},
    }  # fmt: skip
    if policy.zero == 0:
        data["distributed_type"] = "MULTI_GPU"
        del data["fsdp_config"]
    if max(policy.tp, policy.cp) == 1 and 1 in (replicate, shard):
        del data["parallelism_config"]  # what a plain job does anyway; older releases do not know the word
    return data


def started(
    launch: Launch, program: str, words: Sequence[str], notes: tuple[str, ...], smoke: str = "", *, batch: bool = True,
    recomputes: bool = True,
) -> Written:  # fmt: skip
    """The configuration, and the script that starts a program of the Trainer with it. `batch`: by its arguments."""
    policy, job = launch.policy, launch.case.job
    sizes = [
        "--per_device_train_batch_size", str(policy.micro_batch),
        "--gradient_accumulation_steps", str(job.global_batch // (policy.dp * policy.micro_batch)),
    ] if batch else []  # fmt: skip
    launcher = (
        'accelerate launch --config_file accelerate.yaml --machine_rank "$NODE_RANK" \\\n'
        '    --main_process_ip "$MASTER_ADDR" --main_process_port "$MASTER_PORT"'
    )
    environment = network_environment(launch.case.cluster, launch.cards)
    text = yaml_text(configuration(launch, recomputes), notes)
    return configured(launch, "accelerate.yaml", text, program, [*sizes, *words], environment, notes, launcher, smoke)


def _write(launch: Launch) -> Written:
    notes = [
        "SCRIPT is your training code, with the arguments of transformers' Trainer; its model names the layer to wrap"
    ]
    tuning = launch.case.job.tuning
    if tuning is not None and (found := tuning.adapters) is not None:
        dora = ", use_dora=True" if found.magnitudes else ""
        wanted = f"peft.LoraConfig(r={found.rank}, target_modules={peft_targets(launch.case.model, found)!r}{dora})"
        notes.append(f"SCRIPT adds the adapters: {wanted} (tune {tuning.tune_text})")
    return started(launch, '"${SCRIPT:?}"', (), tuple(notes), TOY)


def _claims(settings: FileSettings) -> bool:
    known = settings.has("distributed_type") or settings.has("compute_environment")
    return known and not settings.first(*OF_TRL, *OF_PROGRAMS)


def read_configuration(settings: FileSettings, known: Known) -> Found:
    kind = settings.text("distributed_type").upper()
    if kind == "DEEPSPEED":
        values = {f"accelerate.{name}": value for name, value in settings.values.items()}
        found = read_trainer(FileSettings(values, settings.where, settings.program), known, TrainerNames(usual_micro=1))
        settings.below("")
        return replace(found, notes=(*found.notes, IN_SCRIPT), global_batch=None)
    if kind == "MEGATRON_LM":
        raise settings.refuse("distributed_type", "FSDP, DEEPSPEED or MULTI_GPU")
    gpus = settings.whole("num_processes", known.gpus or 1)
    tp, ring, heads = (settings.whole(f"{SIZES}{axis}_size") for axis in ("tp", "cp", "sp"))
    cp = ring * heads
    gathered = settings.text(f"{SIZES}cp_comm_strategy", "allgather") == "allgather"
    exchange = "ulysses" if heads > 1 else "gather" if gathered else "ring"
    replicate = settings.whole(f"{SIZES}dp_replicate_size")
    sharded = kind == "FSDP"
    rest = gpus // (tp * cp * replicate)
    shard = settings.whole(f"{SIZES}dp_shard_size", rest if sharded else 1)
    stated = any(settings.has(f"{SIZES}{name}_size") for name in ("dp_replicate", "dp_shard"))
    if not stated and not sharded:
        replicate = gpus // (tp * cp)
    if tp * cp * replicate * shard != gpus:
        raise settings.refuse("num_processes", f"{tp * cp * replicate * shard}, the product of the sizes")
    whole = settings.text("fsdp_config.fsdp_reshard_after_forward", "true").lower() in ("true", "full_shard")
    first = 3 if whole else 2
    if settings.text("fsdp_config.fsdp_version") == "2" and settings.has("fsdp_config.fsdp_reshard_after_forward"):
        settings.text("fsdp_config.fsdp_sharding_strategy")  # the second version goes by the other
    else:
        first = settings.choice("fsdp_config.fsdp_sharding_strategy", FIRST_FSDP, first)
    if first == 0 and not stated:
        replicate, shard = shard, 1
    zero, group = read(replicate * shard, shard, cp, first == 3) if sharded else (0, 0)
    words = {"full": settings.flag("fsdp_config.fsdp_activation_checkpointing")}
    notes = list[str]()
    if settings.flag("fsdp_config.fsdp_offload_params"):
        notes.append("parameters and optimizer offloaded together are not modelled")
    micro = settings.whole("per_device_train_batch_size")
    steps = settings.whole_or_none("gradient_accumulation_steps")
    policy = Policy(
        dp=replicate * shard, tp=tp, cp=cp, zero=zero, shard_group=group, micro_batch=micro,
        recompute="full" if words["full"] else "none", **_own(""),
    )  # fmt: skip
    if not settings.has("per_device_train_batch_size"):
        notes.append(IN_SCRIPT)
    names = {v: k for k, v in PRECISIONS.items()}
    precision = names.get(settings.text("mixed_precision", "no"), "")
    for name in ("num_machines", "machine_rank", "fsdp_config.fsdp_version", f"{SIZES}sp_backend"):
        settings.text(name)
    return Found(
        policy=policy, gpus=gpus, global_batch=steps * micro * policy.dp if steps else None, precision=precision,
        notes=tuple(notes), software={"context_parallel": exchange} if cp > 1 else {},
    )  # fmt: skip


FORMAT = Format(
    name="accelerate",
    smoke=f"SCRIPT=smoke.py bash train.sh --max_steps 2 ({ON_CPU})",
    title="accelerate",
    stack=STACK,
    source="huggingface/accelerate 16cb6eb8: src/accelerate/commands/launch.py, src/accelerate/parallelism_config.py",
    only={
        "pp": (1,), "ep": (1,), "etp": (0,), "recompute": ("none", "full"), "recompute_modules": ((),),
        "order": ("tp-cp-dp-pp",), "attention": ("flash",), "offload": ("none",), "sync": ("",),
    },
    states=("context_parallel",), own=_own, gaps=gaps_of_file, write=_write, claims=_claims, read=read_configuration,
    adapters=True, own_script=True,
)  # fmt: skip
