"""Scripts on Hugging Face's Trainer: its arguments on the command line or in a file, beside arguments of their own."""

import re
from typing import Any

from shardwise.programs.formats import trl
from shardwise.programs.formats._contract import Format, Found, Known
from shardwise.programs.formats._settings import FileSettings
from shardwise.programs.formats._trainer import FAMILY, OF_TRAINER, TrainerNames, is_of_trainer, read_trainer
from shardwise.programs.formats._tuning import PEFT_USUAL, peft_text

NAMES = TrainerNames(launched_apart=True)
MODEL = ("model_name_or_path", "model_name", "model_path", "model_id", "pretrained_model_name_or_path", "model")
ADAPTERS = ("use_peft", "use_lora", "lora_enable", "lora", "enable_lora", "q_lora", "use_qlora", "use_llm_lora")
RANKS = ("lora_r", "lora_rank", "lora_dim", "r", "use_llm_lora")
KEPT = ("freeze_backbone", "freeze_llm", "freeze_mlp")
"""the tower; what stays as it is beside adapters anyway"""
TARGETS = {r"llava": ("all",), r"internvl": ("all",)}
"""of scripts that adapt every linear module (find_all_linear_names; wrap_llm_lora)"""
PARTS = re.compile(
    r"(?:un)?freeze_\w+|tune_(?:mm|type)_\w+|mm_tunable_parts|use_(?:backbone|qllama)_lora|use_lisa|lisa_activated_layers"
)
"""arguments of scripts around Llava, InternVL, Qwen-VL, TinyLLaVA and LMFlow that say which parts are trained"""
KEPT_STILL = re.compile(r"tune_(?!mm_|type_)\w+")
"""the same where they are off"""
RANK, LLAVA_RANK = 8, 64
"""of PEFT, and of the script of LLaVA and of those derived from it, where no rank is stated"""


def _claims(settings: FileSettings) -> bool:
    return is_of_trainer(settings) and not trl.FORMAT.claims(settings)


def _read(settings: FileSettings, known: Known) -> Found:
    notes, beyond = list[str](), list[str]()
    adapters = next((name for name in ADAPTERS if settings.has(name) and settings.text(name).lower() not in OFF), "")
    if not adapters and (settings.has("lora_dim") and settings.whole("lora_dim", least=0)):
        adapters = "lora_dim"
    if not adapters and re.search(r"lora", settings.program.rpartition("/")[2]) and not settings.first(*ADAPTERS):
        adapters = settings.program
    more: dict[str, Any] = {"called": settings.text(settings.first(*MODEL) or MODEL[0])}
    if adapters:
        four = settings.text("bits") == "4" or any(
            settings.has(name) and settings.text(name).lower() not in OFF for name in ("q_lora", "use_qlora")
        )
        if four:
            settings = _with(settings, load_in_4bit=True)
        rank = LLAVA_RANK if "llava" in settings.program else RANK
        usual = next((names for start, names in TARGETS.items() if re.search(start, settings.program)), PEFT_USUAL)
        more["tune"] = peft_text(settings, notes, beyond, rank=rank, rank_names=RANKS, targets=usual, nested=four)
    frozen = [name for name in settings.names() if PARTS.fullmatch(name) and settings.text(name).lower() not in ALL]
    frozen += [
        name for name in settings.names() if KEPT_STILL.fullmatch(name) and settings.text(name).lower() in OFF[:3]
    ]
    more["freeze"] = "vision" if "freeze_backbone" in frozen and adapters != "freeze_backbone" else ""
    beyond += [f"{name} {settings.text(name)}: which parts are trained; all but the vision tower's are priced so"
               for name in frozen if name not in KEPT[: 3 if adapters else 1]]  # fmt: skip
    return read_trainer(settings, known, NAMES, notes=notes, not_modelled=beyond, **more)


OFF = ("false", "no", "0", "none", "")
ALL = (*OFF, "full")


def _with(settings: FileSettings, **more: Any) -> FileSettings:
    """The same settings with what a script's own switch stands for."""
    return FileSettings({**settings.values, **more}, settings.where, settings.program, settings.track)


FORMAT = Format(
    name="transformers", title="Hugging Face Trainer", stack=OF_TRAINER, parts=True, only=FAMILY,
    source="huggingface/transformers d56c55bf: src/transformers/training_args.py, integrations/deepspeed.py",
    claims=_claims, read=_read, own_script=True, adapters=True,
)  # fmt: skip
