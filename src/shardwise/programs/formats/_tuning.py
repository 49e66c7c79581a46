"""Adapters and frozen parts, as programs state them -> the words of `--tune` and `--freeze`."""

from collections.abc import Sequence

from shardwise.programs.formats._adapters import ALL, tune_text
from shardwise.programs.formats._settings import FileSettings

ALL_LINEAR = (ALL, "all", "all_linear", "*_proj")
TRAINED_WHOLE = ("lora_modules_to_save", "modules_to_save", "additional_target")
PEFT_USUAL = ("q_proj", "v_proj")
"""of PEFT for Llama, Mistral and Qwen2, where no target is stated (peft/utils/constants.py)"""


def peft_text(
    settings: FileSettings,
    notes: list[str],
    beyond: list[str],
    *,
    rank: int = 16,
    rank_names: Sequence[str] = ("lora_r",),
    targets: Sequence[str] = PEFT_USUAL,
    target_names: Sequence[str] = ("lora_target_modules",),
    nested: bool = True,
) -> str:
    """Of settings in PEFT's words; `rank` and `targets` are the program's own where the file states none."""
    stated = settings.words(settings.first(*target_names)) if settings.first(*target_names) else ()
    if any(mark in name for name in stated for mark in "()^\\|"):
        beyond.append(f"{target_names[0]}: a pattern of names, taken as all matrices of the language model")
        stated = ("all",)
    if (whole := settings.first(*TRAINED_WHOLE)) and (names := settings.words(whole)) and names != ("None",):
        beyond.append(f"{whole}: {', '.join(names)} train whole beside the adapters, which alone are priced")
    if not stated:
        notes.append(f"modules that get adapters are not stated: {', '.join(targets)}, the program's own, are taken")
    name = settings.first(*rank_names)
    if not name:
        notes.append(f"the rank of adapters is not stated: {rank} is taken; a script may have its own")
    dora = settings.flag(settings.first("use_dora", "peft_use_dora") or "use_dora")
    return adapters_text(
        settings.whole(name, rank) if name else rank,
        stated or targets,
        base=base_of(settings, beyond, nested=nested),
        dora=dora,
    )


def adapters_text(rank: int, targets: Sequence[str], *, base: str = "", dora: bool = False) -> str:
    """Of modules in a program's words."""
    names = ["all" if name in ALL_LINEAR else name.rpartition(".")[2] for name in targets]
    return tune_text(rank, ("all",) if "all" in names else tuple(dict.fromkeys(names)), base=base, dora=dora)


def base_of(settings: FileSettings, beyond: list[str], *, nested: bool) -> str:
    """How frozen weights are kept. `nested`: whether scales are quantised too where nobody says."""
    bits = settings.text(settings.first("quantization_bit", "quant_bits") or "quantization_bit")
    settings.text(settings.first("quantization_method", "quant_method") or "quantization_method")
    if settings.flag("load_in_8bit") or bits == "8":
        beyond.append("load_in_8bit: weights of 8 bits, priced as 16")
    if not settings.flag("load_in_4bit") and bits != "4":
        return ""
    stated = settings.first("double_quantization", "use_bnb_nested_quant", "bnb_4bit_use_double_quant")
    kind = settings.first("quantization_type", "bnb_4bit_quant_type")
    if kind and settings.text(kind) == "fp4":
        beyond.append(f"{kind} fp4: priced as nf4, which has as many bits")
    return "nf4" if (settings.flag(stated) if stated else nested) else "nf4-single"
