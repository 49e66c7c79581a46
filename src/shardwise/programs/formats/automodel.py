"""NeMo Automodel: its YAML with FSDP2 or DDP."""

from typing import Any

from shardwise.plugins.optimizers import read_from
from shardwise.programs.formats._contract import Format, Found, Known, Lack, Launch, Written, own_overlaps
from shardwise.programs.formats._files import yaml_text
from shardwise.programs.formats._layout import chunks_of, is_even, passes_of
from shardwise.programs.formats._scripts import configured, network_environment
from shardwise.programs.formats._settings import FileSettings
from shardwise.programs.formats._sharding import degrees, gaps, read
from shardwise.programs.formats._tuning import adapters_text
from shardwise.spec.policy import Policy

STACK = "automodel"
SCHEDULES = {"1f1b": "1f1b", "interleaved": "interleaved1f1b", "gpipe": "gpipe", "looped_bfs": "looped_bfs"}
DISPATCHERS = {"torch": "allgather", "deepep": "flex", "hybridep": "flex", "uccl_ep": "flex", "mok": "flex"}
CALLED = ("model.pretrained_model_name_or_path", "model.config.pretrained_model_name_or_path", "model.config")
"""where the model's name stands"""
DISTRIBUTED, PIPELINE = "distributed.", "distributed.pipeline."


def _own(_version: str) -> dict[str, Any]:
    return own_overlaps(STACK, "overlap_grad", "overlap_param", "overlap_pp")


def _gaps(launch: Launch) -> list[Lack]:
    policy, found = launch.policy, gaps(launch)
    if not is_even(chunks_of(launch)):
        found.append(Lack("pp", policy.pp, "stages of different length are not written"))
    if policy.loss != launch.case.stack.loss.loss_kind:
        found.append(Lack("loss", policy.loss, "it is chosen by the recipe"))
    if launch.case.job.precision.compute not in ("bf16", "fp32"):
        raise ValueError(f"precision: {launch.case.job.precision.name} is not stated here; write bf16 or fp32")
    return found


def _write(launch: Launch) -> Written:
    policy, job = launch.policy, launch.case.job
    replicate, shard = degrees(policy)
    micro_batches = job.global_batch // (policy.dp * policy.micro_batch * job.pipeline_passes)
    local = policy.micro_batch * (micro_batches if policy.pp > 1 else 1)
    distributed: dict[str, Any] = {
        "dp_size": policy.dp, "tp_size": policy.tp, "cp_size": policy.cp, "pp_size": policy.pp, "ep_size": policy.ep,
        "activation_checkpointing": False if policy.recompute == "none" else policy.recompute,
    }  # fmt: skip
    if shard * policy.cp == 1 and policy.dp > 1:
        distributed = {"strategy": "ddp", **distributed}  # which refuses what only FSDP2 knows
    else:
        distributed = {
            "strategy": "fsdp2", "dp_replicate_size": replicate, **distributed, "sequence_parallel": policy.sp,
            "enable_async_tensor_parallel": policy.overlap_tp, "reshard_after_forward": policy.zero != 2,
        }  # fmt: skip
    if policy.pp > 1:
        distributed["pipeline"] = {
            "pp_schedule": SCHEDULES[policy.schedule], "pp_microbatch_size": policy.micro_batch,
            "layers_per_stage": chunks_of(launch)[0],
        }  # fmt: skip
    data = {
        "step_scheduler": {"global_batch_size": job.global_batch, "local_batch_size": local, "max_steps": 50},
        "model": {
            "pretrained_model_name_or_path": "YOUR_MODEL",
            "torch_dtype": "bf16" if job.precision.compute == "bf16" else "float32",
        },
        "dataset": {
            "_target_": "nemo_automodel.components.datasets.llm.mock_iterable_dataset.MockIterableDataset",
            "seq_len": job.seq,
        },
        "distributed": distributed,
    }  # fmt: skip
    notes = ("overrides for the recipe of your model: name it, its data and optimizer",)
    environment, words = network_environment(launch.case.cluster, launch.cards), ["-c", "automodel.yaml"]
    return configured(launch, words[1], yaml_text(data, notes), '"${RECIPE:?}"', words, environment, notes)


def _claims(settings: FileSettings) -> bool:
    sized = settings.has("distributed.strategy") or settings.has("distributed.tp_size")
    return sized and not settings.first("distributed.fsdp_type", "dump_dir")


def _read(settings: FileSettings, known: Known) -> Found:
    def size(axis: str) -> int:
        return settings.whole(f"{DISTRIBUTED}{axis}_size")

    tp, cp, pp, notes = size("tp"), size("cp"), size("pp"), list[str]()
    gpus = known.gpus
    if settings.text("distributed.dp_size", "none") != "none":
        gpus = settings.whole("distributed.dp_size") * tp * cp * pp
    if gpus is None:
        notes.append("the file does not say how many GPUs: one replica is assumed")
    dp = settings.whole("distributed.dp_size", max((known.gpus or 1) // (tp * cp * pp), 1))
    strategy = settings.text("distributed.strategy", "fsdp2")
    shard = 1 if strategy == "ddp" else dp // size("dp_replicate")
    reshards = settings.flag("distributed.reshard_after_forward", pp == 1)
    zero, group = read(dp, shard, cp, reshards, 0 if strategy == "ddp" else gpus)
    each = settings.whole_or_none(f"{PIPELINE}layers_per_stage")
    vpp = max(known.layers // (each * pp), 1) if each and known.layers and pp > 1 else 1
    words = {"true": "full", "full": "full", "selective": "selective", "false": "none"}
    local = settings.whole("step_scheduler.local_batch_size")
    policy = Policy(
        dp=dp, tp=tp, cp=cp, pp=pp, vpp=vpp, ep=size("ep"), zero=zero, shard_group=group,
        sp=settings.flag("distributed.sequence_parallel") and tp > 1,
        overlap_tp=settings.flag("distributed.enable_async_tensor_parallel"),
        recompute=settings.choice("distributed.activation_checkpointing", words, "none"),
        schedule=settings.choice(f"{PIPELINE}pp_schedule", {v: k for k, v in SCHEDULES.items()}, "1f1b"),
        micro_batch=settings.whole(f"{PIPELINE}pp_microbatch_size", 1) if pp > 1 else local,
        attention="plain" if settings.text("model.attn_implementation") == "eager" else "flash", **_own(""),
    )  # fmt: skip
    dtype = settings.text("model.torch_dtype", "bf16").removeprefix("torch.")
    frozen, beyond = _frozen(settings)
    length = settings.first("packed_sequence.packed_sequence_size", "dataset.seq_len", "dataset.seq_length")
    called = settings.first(*CALLED)
    dispatcher = settings.choice("model.backend.dispatcher", DISPATCHERS, "")
    batch = settings.whole_or_none("step_scheduler.global_batch_size")
    return Found(
        policy=policy, gpus=gpus and policy.gpus, seq=settings.whole(length, least=0) or None if length else None,
        global_batch=batch, called=settings.text(called) if called else "", tune=_adapters(settings), freeze=frozen,
        optimizer=read_from("torchtitan", settings.text("optimizer._target_").rpartition(".")[2]), not_modelled=beyond,
        pipeline_passes=passes_of(batch, dp * local, pp),
        precision="fp32" if dtype in ("float32", "fp32") else "bf16", notes=tuple(notes),
        software={"dispatcher": dispatcher} if policy.ep > 1 and dispatcher else {},
    )  # fmt: skip


def _adapters(settings: FileSettings) -> str:
    if not any(name.startswith("peft.") for name in settings.names()):
        return ""
    settings.text("peft._target_")
    every = settings.flag("peft.match_all_linear") or not settings.has("peft.target_modules")
    return adapters_text(
        settings.whole("peft.dim", 8), ("all",) if every else settings.words("peft.target_modules"),
        base="nf4" if settings.flag("quantization.load_in_4bit") else "", dora=settings.flag("peft.use_dora"),
    )  # fmt: skip


def _frozen(settings: FileSettings) -> tuple[str, tuple[str, ...]]:
    """Parts that are not trained: the vision tower can be priced."""
    parts = [name for name in settings.names() if name.startswith("freeze_config.freeze_") and settings.flag(name)]
    tower = "freeze_config.freeze_vision_tower"
    return "vision" if tower in parts else "", tuple(f"{name}: priced as trained" for name in parts if name != tower)


FORMAT = Format(
    name="automodel", smoke="--step_scheduler.max_steps 3",
    title="NeMo Automodel",
    stack=STACK,
    source="NVIDIA-NeMo/Automodel 36044ad3d: nemo_automodel/components/distributed/config.py, pipelining/config.py",
    only={
        "etp": (0,), "schedule": tuple(SCHEDULES), "recompute_modules": ((),), "order": ("tp-cp-dp-pp",),
        "attention": ("flash",), "offload": ("none",), "sync": ("",),
    },
    local_batches=True,
    own=_own, gaps=_gaps, write=_write, claims=_claims, read=_read,
)  # fmt: skip
