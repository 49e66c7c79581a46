"""Axolotl: one YAML of its own names over Hugging Face's Trainer, with FSDP or DeepSpeed inside of it or beside it."""

from typing import Any

from shardwise.programs.formats._contract import Format, Found, Known
from shardwise.programs.formats._settings import FileSettings
from shardwise.programs.formats._trainer import FAMILY, TrainerNames, read_trainer
from shardwise.programs.formats._tuning import peft_text

BUNDLED = {
    "zero1": (1, "none"), "zero1_torch_compile": (1, "none"), "zero2": (2, "none"), "zero2_torch_compile": (2, "none"),
    "zero3": (3, "none"), "zero3_bf16": (3, "none"), "zero3_bf16_cpuoffload_all": (3, "cpu"),
    "zero3_bf16_cpuoffload_params": (3, "none"),
}  # fmt: skip
"""its deepspeed_configs"""
NAMES = TrainerNames(
    micro=("micro_batch_size",), usual_micro=1, seq=("sequence_len",), usual_seq=512, bundled=BUNDLED,
    recompute=("gradient_checkpointing",), packing=("sample_packing",),
)  # fmt: skip
SIZES = {"tensor_parallel_size": "tp", "context_parallel_size": "cp", "sequence_parallel_degree": "cp",
         "dp_replicate_size": "dp_replicate"}  # fmt: skip


def _claims(settings: FileSettings) -> bool:
    return settings.has("base_model") and bool(settings.first("sequence_len", "micro_batch_size", "adapter"))


def _read(settings: FileSettings, known: Known) -> Found:
    notes, beyond = list[str](), list[str]()
    more: dict[str, Any] = {"called": settings.text("base_model")}
    adapter = settings.text("adapter")
    if adapter in ("lora", "qlora"):
        values = {**settings.values, **({"load_in_4bit": True} if adapter == "qlora" else {})}
        if settings.flag("lora_target_linear"):
            values["lora_target_modules"] = ["all"]
        kept = FileSettings(values, settings.where, settings.program, settings.track)
        more["tune"] = peft_text(kept, notes, beyond, rank=8)
        settings.words("lora_target_modules")
    elif adapter:
        raise settings.refuse("adapter", "lora or qlora")
    if settings.first("unfrozen_parameters"):
        beyond.append("unfrozen_parameters: the parts that are trained; all are priced so")
        settings.words("unfrozen_parameters")
    if (rl := settings.text("rl")) not in ("", "None"):
        beyond.append(f"rl {rl}: a step runs more than one forward of an example; one of each sequence is priced")
    sizes = {f"parallelism_config.parallelism_config_{axis}_size": settings.whole(name)
             for name, axis in SIZES.items() if settings.has(name)}  # fmt: skip
    settings.whole_or_none("dp_shard_size")
    version = {"fsdp": "full_shard"} if _shares(settings) else {}
    values = {**settings.values, **{f"accelerate.{name}": value for name, value in sizes.items()}, **version}
    if "fsdp" in settings.values and version:
        settings.words("fsdp")
    inner = FileSettings(values, settings.where, settings.program, settings.track)
    settings.text("fsdp_version")
    settings.flag("flash_attention")
    return read_trainer(inner, known, NAMES, notes=notes, not_modelled=beyond, **more)


def _shares(settings: FileSettings) -> bool:
    """Whether FSDP is switched on, and not only described: then a list or a configuration of it is stated."""
    fsdp = str(settings.values.get("fsdp", ""))
    return fsdp not in ("", "[]", "None") or any(name.startswith("fsdp_config.") for name in settings.names())


FORMAT = Format(
    name="axolotl", title="Axolotl", stack="hugging-face", parts=True, only=FAMILY,
    source="axolotl-ai-cloud/axolotl 067b021c8: src/axolotl/utils/schemas/config.py, peft.py",
    starts=r"axolotl (?:train|preprocess)|axolotl\.cli\.train", claims=_claims, read=_read, adapters=True,
)  # fmt: skip
