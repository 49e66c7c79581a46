"""ms-swift: fine-tuning on Hugging Face's Trainer (`swift sft`), LoRA where nothing else is stated."""

from typing import Any

from shardwise.programs.formats._contract import Format, Found, Known
from shardwise.programs.formats._settings import FileSettings
from shardwise.programs.formats._trainer import FAMILY, TrainerNames, read_trainer
from shardwise.programs.formats._tuning import peft_text

BUNDLED = {f"zero{stage}{kind}": (stage, "cpu" if kind else "none") for stage in range(4) for kind in ("", "_offload")}
"""its swift/config"""
NAMES = TrainerNames(
    usual_micro=1, wanted_batch=16, seq=("max_length",), recomputes=True, half="bf16", bundled=BUNDLED,
)  # fmt: skip
TUNERS = ("lora", "full", "lora_llm")


def frozen_of(settings: FileSettings, beyond: list[str]) -> str:
    """Parts of a model that also sees: its tower is frozen where nothing is stated."""
    if settings.flag("freeze_llm"):
        beyond.append("freeze_llm: the language model is frozen; it is priced as trained")
    settings.flag("freeze_aligner", True)
    ratio = settings.number("freeze_parameters_ratio", 0.0)
    if ratio > 0:
        beyond.append(f"freeze_parameters_ratio {ratio:g}: a share of the parameters; all are priced as trained")
    return "vision" if settings.flag("freeze_vit", True) and _sees(settings.text("model")) else ""


def _sees(model: str) -> bool:
    return any(
        mark in model.lower() for mark in ("-vl", "vl-", "vision", "omni", "ovis", "internvl", "llava", "glm-4v", "-v-")
    )


def _claims(settings: FileSettings) -> bool:
    return (
        bool(settings.first("tuner_type", "train_type", "sft_type"))
        and settings.has("model")
        and not settings.has("micro_batch_size")
    )


def _read(settings: FileSettings, known: Known) -> Found:
    notes, beyond = list[str](), list[str]()
    name = settings.first("tuner_type", "train_type", "sft_type") or "tuner_type"
    tuner = settings.text(name, "lora")
    more: dict[str, Any] = {"called": settings.text(settings.first("model", "model_id_or_path") or "model")}
    if tuner in ("lora", "lora_llm", "dora", "qlora"):
        more["tune"] = peft_text(
            settings,
            notes,
            beyond,
            rank=8,
            rank_names=("lora_rank",),
            targets=("all",),
            target_names=("target_modules",),
        )
    elif tuner != "full":
        raise settings.refuse(name, f"one of {', '.join(TUNERS)}")
    else:
        more["freeze"] = frozen_of(settings, beyond)
    heads = settings.whole("sequence_parallel_size")
    values: dict[str, Any] = {"parallelism_config_sp_size": heads} if heads > 1 else {}
    if settings.text("torch_dtype") == "float32":
        values["bf16"] = False
    elif settings.text("torch_dtype") == "float16":
        values["fp16"] = True
    if settings.has("rlhf_type"):
        beyond.append(
            f"rlhf_type {settings.text('rlhf_type')}: rollouts and other models' passes; the update alone is priced"
        )
    if settings.has("max_completion_length") and not settings.has("max_length"):
        notes.append("max_length not stated: the model's own")
    inner = FileSettings({**settings.values, **values}, settings.where, settings.program, settings.track)
    return read_trainer(inner, known, NAMES, notes=notes, not_modelled=beyond, **more)


FORMAT = Format(
    name="ms_swift", title="ms-swift", stack="hugging-face", parts=True, only=FAMILY,
    source="modelscope/ms-swift 3602360a5: swift/arguments, swift/trainers/arguments.py, swift/config",
    starts=r"swift (?:sft|rlhf|pt)|(?:.*/)?swift/cli/(?:sft|rlhf|pt)\.py|swift\.cli\.(?:sft|rlhf|pt)",
    claims=_claims, read=_read, adapters=True,
)  # fmt: skip
