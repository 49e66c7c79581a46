"""torchtune: a recipe's YAML, and `tune run`, which names the recipe and the GPUs."""

import re

from shardwise.programs.formats._adapters import tune_text
from shardwise.programs.formats._contract import Format, Found, Known
from shardwise.programs.formats._settings import FileSettings
from shardwise.programs.formats._sharding import read as shared
from shardwise.programs.formats._trainer import FAMILY
from shardwise.spec.policy import Policy

SINGLE = "single_device"
COMPONENT = re.compile(r"torchtune\.models\.\w+\.(?:(q?lora|q?dora)_)?(\w+)")


def _claims(settings: FileSettings) -> bool:
    return str(settings.values.get("model._component_", "")).startswith("torchtune.")


def _read(settings: FileSettings, known: Known) -> Found:
    notes, beyond = list[str](), list[str]()
    recipe = settings.program + " " + settings.where
    single = SINGLE in recipe or (settings.text("optimizer_in_bwd") == "True" and SINGLE in recipe)
    gpus = 1 if single else known.gpus
    if gpus is None:
        notes.append("the file does not say how many GPUs: one replica is assumed")
    tp, cp = settings.whole("tensor_parallel_dim"), settings.whole("context_parallel_dim")
    dp = max((gpus or 1) // (tp * cp), 1)
    replicas = settings.whole("data_parallel_replicate_dim")
    shard = settings.whole("data_parallel_shard_dim", -1, least=-1)
    reshards = settings.flag("fsdp_reshard_after_forward", True)
    zero, group = shared(dp, dp // replicas if shard < 1 else shard, cp, reshards, gpus)
    micro, steps = settings.whole("batch_size", 2), settings.whole("gradient_accumulation_steps")
    if settings.flag("fsdp_cpu_offload"):
        beyond.append("fsdp_cpu_offload: parameters and optimizer offloaded together are not modelled")
    if settings.flag("enable_activation_offloading"):
        beyond.append("enable_activation_offloading: kept activations go to the host's memory; priced as kept")
    for name in (
        "quantizer._component_",
        "loss._component_" if "dpo" in recipe.lower() else "ref_checkpointer._component_",
    ):
        if settings.has(name):
            beyond.append(f"{name} {settings.text(name)}: a step runs more than a forward and a backward pass")
    settings.text("loss._component_")
    match = COMPONENT.match(settings.text("model._component_"))
    dtype = settings.text("dtype", "bf16")
    length = settings.whole("tokenizer.max_seq_len", 0) or settings.whole("dataset.max_seq_len", 0)
    if not settings.flag("dataset.packed"):
        notes.append("examples are not packed: the longest of a batch decides, which the file does not say")
    policy = Policy(
        dp=dp, tp=tp, cp=cp, zero=zero, shard_group=group, micro_batch=micro, sp=False,
        recompute="full" if settings.flag("enable_activation_checkpointing") else "none",
        loss="chunked" if "Chunked" in settings.text("loss._component_") else "",
    )  # fmt: skip
    settings.text("compile")
    for name in settings.names():
        if name.rpartition(".")[2] == "_component_" or name.startswith(("profiler.", "metric_logger.")):
            settings.text(name)
    return Found(
        policy=policy, gpus=gpus, seq=length or None, global_batch=micro * steps * dp, called=match[2] if match else "",
        precision={"bf16": "bf16", "fp16": "fp16", "fp32": "fp32"}.get(dtype, ""), tune=_tune(settings, match),
        optimizer=_optimizer(settings), notes=tuple(notes), not_modelled=tuple(beyond),
        software={"context_parallel": "gather"} if cp > 1 else {},
    )  # fmt: skip


def _tune(settings: FileSettings, match: "re.Match[str] | None") -> str:
    if match is None or not match[1]:
        return ""
    names = [{"output_proj": "o_proj"}.get(name, name) for name in settings.words("model.lora_attn_modules")]
    if settings.flag("model.apply_lora_to_mlp"):
        names += ["gate_proj", "up_proj", "down_proj"]
    settings.flag("model.apply_lora_to_output")
    four = match[1].startswith("q") or settings.flag("model.quantize_base")
    dora = match[1].endswith("dora") or settings.flag("model.use_dora")
    return tune_text(settings.whole("model.lora_rank", 8), names, dora=dora, base="nf4" if four else "")


def _optimizer(settings: FileSettings) -> str:
    name = settings.text("optimizer._component_").lower()
    known = (("8bit", "adamw-8bit"), ("adam", "adamw"), ("sgd", "sgd"), ("lion", "lion"), ("adafactor", "adafactor"))
    return next((rule for part, rule in known if part in name), "adamw")


FORMAT = Format(
    name="torchtune",
    title="torchtune",
    stack="torchtune",
    claims=_claims,
    read=_read,
    only=FAMILY,
    adapters=True,
    source="pytorch/torchtune bd2a0fc7: recipes/full_finetune_distributed.py, recipes/configs",
    starts=r"tune run",
)
