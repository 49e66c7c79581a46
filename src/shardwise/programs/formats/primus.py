"""Primus: a YAML whose pre_trainer overrides Megatron's settings under their own names."""

import re
from dataclasses import replace
from functools import partial
from typing import Any

from shardwise.programs.formats._contract import Found, Known, Launch, Written
from shardwise.programs.formats._files import yaml_text
from shardwise.programs.formats._megatron import MegatronProgram, arguments, gaps, megatron_format, read
from shardwise.programs.formats._scripts import configured
from shardwise.programs.formats._settings import FileSettings
from shardwise.programs.formats.megatron import environment

PROGRAM = MegatronProgram()
OVERRIDES = "modules.pre_trainer.overrides."
_DEFAULTED = re.compile(r"\$\{\w+:([^}]*)\}")
"""a variable of the environment with what holds where it is not set"""


def _write(launch: Launch) -> Written:
    parallel, batch = arguments(launch, PROGRAM)
    settings = parallel | batch | {"max_position_embeddings": launch.case.job.seq}
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
    program, words = '"${PRIMUS_PATH:-.}/primus/cli/main.py"', ["train", "pretrain", "--config", "primus.yaml"]
    return configured(launch, words[-1], yaml_text(data, notes), program, words, environment(launch), notes)


def _claims(settings: FileSettings) -> bool:
    return any(name.startswith("modules.pre_trainer.") for name in settings.names())


def _read(settings: FileSettings, known: Known) -> Found:
    framework = settings.text("modules.pre_trainer.framework", "megatron")
    if framework != "megatron":
        raise settings.refuse("modules.pre_trainer.framework", "megatron; other programs have targets of their own")
    overrides = settings.below(OVERRIDES)
    plain = {name: _filled(overrides, name) for name in overrides.names()}
    inner = FileSettings(plain, OVERRIDES.rstrip("."))
    # of its pre_trainer.yaml and language_model.yaml
    found = read(inner, known, {"sequence_parallel": True, "use_distributed_optimizer": True})
    notes = (
        *found.notes,
        "Primus' own files for the trainer and the model are not read, only these overrides",
    )
    return replace(found, unmodelled=inner.left(), notes=notes)


def _filled(settings: FileSettings, name: str) -> Any:
    value = settings.text(name)
    words = settings.words(name) if name in ("recompute_modules", "cp_comm_type") else ()
    return words or _DEFAULTED.sub(r"\1", value)


FORMAT = megatron_format(
    name="primus",
    title="Primus",
    stack="megatron-core",
    source="AMD-AGI/Primus fd1eeabb: examples/megatron/configs, primus/configs/modules/megatron",
    gaps=partial(gaps, PROGRAM), write=_write, claims=_claims, read=_read,
)  # fmt: skip
