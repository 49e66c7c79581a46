"""Programs that are known by name and not read, so that a file of theirs is refused by name and never misread."""

import re
from collections.abc import Sequence

from shardwise.programs.formats._settings import FileSettings

PROGRAMS = {
    r"(?:.*colossal.*)": "ColossalAI",
    r".*(?:fairseq|metaseq).*": "fairseq",
    r".*(?:llm-foundry|composer).*": "llm-foundry",
    r".*nemo_run.*|nemo .*|nemorun.*": "NeMo 2, whose recipes are Python",
    r"verl\.trainer\.main": "EasyR1, a fork of verl with settings of its own",
    r".*open_instruct/(?!finetune|dpo_tune).*": "open-instruct's reinforcement learning",
    r"xtuner.*": "XTuner, whose configurations are Python",
    r".*mindspeed.*": "MindSpeed",
    r".*olmo_core.*|.*OLMo.*|.*Olmo.*": "OLMo-core, whose configurations are Python",
}  # fmt: skip
SETTINGS = {
    ("plugin", "tp_size", "zero_stage"): "ColossalAI",
    ("distributed.fsdp_type", "model.n_layers"): "lingua",
    ("dump_dir", "optim.lr"): "lingua",
    ("trainer.precision", "model.micro_batch_size", "model.optim.name"): "NeMo 1",
    ("max_duration", "fsdp_config.sharding_strategy"): "llm-foundry",
    ("variables.max_seq_len", "max_duration"): "llm-foundry",
    ("deployment", "serving"): "a server of models",
    ("mem_cap", "per_device_train_batch_size"): "ColossalAI",
}  # fmt: skip
"""settings that stand together in the files of one program only"""


def stranger_by_start(program: str) -> str:
    """The program that a command starts, where it is one of these; empty: it is not."""
    return next((title for start, title in PROGRAMS.items() if program and re.fullmatch(start, program)), "")


def stranger(settings: FileSettings) -> str:
    """By what a file starts, else by its settings."""
    by_settings = (title for names, title in SETTINGS.items() if all(map(settings.has, names)))
    return stranger_by_start(settings.program) or next(by_settings, "")


def refused(settings: FileSettings, claiming: Sequence[str], target: str, known: Sequence[str]) -> ValueError:
    """Why nothing is read."""
    if target and claiming:
        return ValueError(
            f"target: {settings.where} is of {' or '.join(claiming)}, not of {target}; leave --target out"
        )
    title = stranger(settings)
    what = f"is of {title}" if title else f"starts {settings.program}" if settings.program else "is of no known program"
    if target:
        return ValueError(f"target: {settings.where} {what} and has no settings of {target}; name a file of {target}")
    return ValueError(f"file: {settings.where} {what}: it is not read; files are read of {', '.join(known)}")
