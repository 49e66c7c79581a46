"""Primus: a YAML whose pre_trainer overrides Megatron's settings under their own names."""

import re
from dataclasses import replace
from typing import Any

from shardwise.formats._contract import Format, Found, Gap, Known, Launch, Written
from shardwise.formats._files import yaml_text
from shardwise.formats._megatron import ONLY, Program, batch_settings, gaps, numeric_settings, parallel_settings, read
from shardwise.formats._scripts import script
from shardwise.formats._settings import Settings
from shardwise.formats.megatron import environment

PROGRAM = Program()
OVERRIDES = "modules.pre_trainer.overrides."
_DEFAULTED = re.compile(r"\$\{\w+:([^}]*)\}")
"""a variable of the environment with what holds where it is not set"""


def _gaps(launch: Launch) -> list[Gap]:
    return gaps(launch, PROGRAM)


def _write(launch: Launch) -> Written:
    settings: dict[str, Any] = parallel_settings(launch, PROGRAM)
    if (chunks := settings.pop("virtual_pipeline_model_parallel_size", None)) is not None:
        settings["num_virtual_stages_per_pipeline_rank"] = chunks
    settings |= batch_settings(launch) | {"max_position_embeddings": launch.case.job.seq} | numeric_settings(launch)
    name = launch.called or launch.case.model.name
    data = {
        "work_group": "shardwise", "user_name": "shardwise", "exp_name": f"{launch.case.model.name}-pretrain",
        "workspace": "./output",
        "modules": {"pre_trainer": {
            "framework": "megatron", "config": "pre_trainer.yaml", "model": f"{name}.yaml",
            "overrides": {**settings, "train_iters": 50, "mock_data": True},
        }},
    }  # fmt: skip
    notes = (f"model: name the file of Primus that describes {name}; data and iterations stand in for yours",)
    found = environment(launch)
    words = ["train", "pretrain", "--config", "primus.yaml"]
    text = script(launch, '"${PRIMUS_PATH:-.}/primus/cli/main.py"', {"ARGS": words}, found, notes)
    return Written({"primus.yaml": yaml_text(data, notes), "train.sh": text}, found, notes)


def _claims(settings: Settings) -> bool:
    return any(name.startswith("modules.pre_trainer.") for name in settings.names())


def _read(settings: Settings, known: Known) -> Found:
    framework = settings.text("modules.pre_trainer.framework", "megatron")
    if framework != "megatron":
        raise settings.refuse("modules.pre_trainer.framework", "megatron; other programs have targets of their own")
    overrides = settings.below(OVERRIDES)
    plain = {name: _filled(overrides, name) for name in overrides.names()}
    inner = Settings(plain, OVERRIDES.rstrip("."))
    found = read(inner, known)
    notes = (
        *found.notes,
        "what Primus' own files for the trainer and the model set beside these overrides is not read",
    )
    return replace(found, unmodelled=(*settings.left(), *inner.left()), notes=notes)


def _filled(settings: Settings, name: str) -> Any:
    value = settings.text(name)
    words = settings.words(name) if name in ("recompute_modules", "cp_comm_type") else ()
    return words or _DEFAULTED.sub(r"\1", value)


FORMAT = Format(
    name="primus",
    title="Primus",
    stack="megatron-core",
    source="AMD-AGI/Primus fd1eeabb: examples/megatron/configs, primus/configs/modules/megatron",
    only=ONLY,
    own=lambda _version: {},
    gaps=_gaps,
    write=_write,
    claims=_claims,
    read=_read,
)
