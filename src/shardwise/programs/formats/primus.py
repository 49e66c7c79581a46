"""Primus: a YAML whose pre_trainer overrides Megatron's settings under their own names."""

import re
from dataclasses import replace
from functools import partial
from typing import Any

from shardwise.programs.formats import torchtitan
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
    if framework not in ("megatron", "torchtitan"):
        raise settings.refuse(
            "modules.pre_trainer.framework", "megatron or torchtitan; others are not read through Primus"
        )
    overrides = settings.below(OVERRIDES)
    plain = {name: _filled(overrides, name) for name in overrides.names()}
    model = settings.text("modules.pre_trainer.model").removesuffix(".yaml")
    if framework == "torchtitan":
        return _read_titan(plain, model, known)
    inner = FileSettings(plain, OVERRIDES.rstrip("."))
    # of its pre_trainer.yaml and language_model.yaml
    found = read(inner, known, {"sequence_parallel": True, "use_distributed_optimizer": True})
    notes = (
        *found.notes,
        "Primus' own files for the trainer and the model are not read, only these overrides",
    )
    return replace(found, unmodelled=inner.left(), notes=notes, called=re.sub(r"-(?:BF16|FP8)-pretrain$", "", model))


def _read_titan(plain: dict[str, Any], model: str, known: Known) -> Found:
    """Its half on torchtitan, in the names of that program's TOML."""
    low = str(plain.get("primus_turbo.use_turbo_float8_linear", "")).lower() == "true"
    fp8 = "fp8" in model and low
    # the form of torchtitan's files up to 0.2.2
    stated = {"job.description": "primus", **plain, **({"model.converters": "float8"} if fp8 else {})}
    inner = FileSettings(stated, OVERRIDES.rstrip("."))
    found = torchtitan.FORMAT.read(inner, known)
    turbo = [name for name in inner.names() if name.startswith("primus_turbo.") and plain[name] in ("True", "true")]
    return replace(
        found, unmodelled=inner.left(), called=model, stack="torchtitan", precision=found.precision,
        notes=(*found.notes, "Primus' own files for the trainer and the model are not read, only these overrides"),
        not_modelled=(*found.not_modelled, *(f"{name}: how kernels run" for name in turbo)),
    )  # fmt: skip


def _filled(settings: FileSettings, name: str) -> Any:
    value = settings.text(name)
    words = settings.words(name) if name in ("recompute_modules", "cp_comm_type") else ()
    return words or _DEFAULTED.sub(r"\1", value)


FORMAT = megatron_format(
    name="primus", smoke="--train_iters 3",
    title="Primus",
    stack="megatron-core",
    source="AMD-AGI/Primus fd1eeabb: examples/megatron/configs, primus/configs/modules/megatron",
    gaps=partial(gaps, PROGRAM), write=_write, claims=_claims, read=_read,
)  # fmt: skip
