"""VeOmni: YAML of its trainers, on FSDP2 with Ulysses; the names of today and of before 2026."""

from shardwise.programs.formats._contract import Format, Found, Known
from shardwise.programs.formats._settings import FileSettings
from shardwise.programs.formats._sharding import read as shared
from shardwise.programs.formats._trainer import FAMILY
from shardwise.programs.formats._tuning import adapters_text
from shardwise.spec.policy import Policy

AT = "train.accelerator."


def _claims(settings: FileSettings) -> bool:
    return bool(settings.first("model.model_path", "model.config_path")) and any(
        name.startswith(
            ("train.accelerator.", "train.data_parallel_mode", "train.ulysses_parallel", "train.enable_gradient")
        )
        or name in ("train.global_batch_size", "train.micro_batch_size")
        for name in settings.names()
    )


def _read(settings: FileSettings, known: Known) -> Found:
    def size(now: str, before: str) -> int:
        name = settings.first(AT + now, f"train.{before}") or AT + now
        return max(settings.whole(name, 1, least=-1), 1)

    notes, beyond = list[str](), list[str]()
    tp, pp, ep = (
        size("tp_size", "tensor_parallel_size"),
        size("pp_size", "pipeline_parallel_size"),
        size("ep_size", "expert_parallel_size"),
    )
    heads, ring = size("ulysses_size", "ulysses_parallel_size"), size("cp_size", "context_parallel_size")
    cp, gpus = heads * ring, known.gpus
    if gpus is None:
        notes.append("the file does not say how many GPUs: one replica is assumed")
    dp = max((gpus or 1) // (tp * pp * cp), 1)
    replicas = size("dp_replicate_size", "data_parallel_replicate_size")
    mode = settings.text(settings.first(f"{AT}fsdp_config.fsdp_mode", "train.data_parallel_mode") or AT, "fsdp2")
    reshards = settings.flag(f"{AT}fsdp_config.reshard_after_forward", True)
    zero, group = (0, 0) if mode == "ddp" else shared(dp, max(dp // replicas, 1), cp, reshards, gpus)
    if settings.flag(settings.first(f"{AT}fsdp_config.offload", "train.enable_fsdp_offload") or AT):
        beyond.append("FSDP's offload: parameters and optimizer offloaded together are not modelled")
    offload = settings.first(
        f"{AT}offload_config.enable_activation", f"{AT}offload.enable_activation", "train.enable_activation_offload"
    )
    recompute = settings.first("train.gradient_checkpointing.enable", "train.enable_gradient_checkpointing")
    micro = settings.whole("train.micro_batch_size")
    if settings.flag(settings.first("train.dyn_bsz", "train.rmpad_with_pos_ids") or "train.dyn_bsz", True):
        notes.append("micro-batches are packed to micro_batch_size x max_seq_len tokens")
    policy = Policy(
        dp=dp,
        tp=tp,
        pp=pp,
        cp=cp,
        ep=ep,
        zero=zero,
        shard_group=group,
        micro_batch=micro,
        sp=tp > 1,
        recompute="full" if not recompute or settings.flag(recompute, True) else "none",
        offload="activations" if offload and settings.flag(offload) else "none",
        attention="plain"
        if settings.text(
            settings.first("model.ops_implementation.attn_implementation", "model.attn_implementation") or AT
        )
        == "eager"
        else "flash",
    )
    mixed = settings.first(f"{AT}fsdp_config.mixed_precision.enable", "train.enable_mixed_precision")
    rank = settings.whole("model.lora_config.rank", settings.whole("model.lora_config.r", 0))
    if settings.has("train.freeze_vit"):
        settings.flag("train.freeze_vit")
    return Found(
        policy=policy,
        gpus=gpus,
        seq=settings.whole_or_none("data.max_seq_len"),
        notes=tuple(notes),
        not_modelled=tuple(beyond),
        global_batch=settings.whole("train.global_batch_size", micro * dp),
        called=settings.text(settings.first("model.model_path", "model.config_path") or "model.model_path"),
        precision="bf16" if not mixed or settings.flag(mixed, True) else "fp32",
        optimizer="adamw"
        if "adam" in settings.text(settings.first("train.optimizer.type", "train.optimizer") or AT, "adamw")
        else "muon",
        freeze="vision" if settings.has("train.freeze_vit") and settings.flag("train.freeze_vit") else "",
        tune=adapters_text(
            rank,
            settings.words(settings.first("model.lora_config.lora_modules", "model.lora_config.target_modules") or AT)
            or ("all",),
        )
        if rank
        else "",
        software={"context_parallel": "ulysses" if heads > 1 else "ring"} if cp > 1 else {},
    )


FORMAT = Format(
    name="veomni", title="VeOmni", stack="torch-fsdp2", claims=_claims, read=_read, adapters=True,
    only={name: values for name, values in FAMILY.items() if name != "ep"}, states=("context_parallel",),
    source="ByteDance-Seed/VeOmni d9774494: veomni/arguments/arguments_types.py",
    starts=r"(?:.*/)?tasks/(?:\w+/)*train_?\w*\.py",
)  # fmt: skip
