"""How each format names what a checkpoint holds: which tensors are written, from which, and what is left behind."""

from typing import Any

from msgspec import Struct, field

from shardwise.run.runtime.formats.options import grouped, schedule_of, settings_of
from shardwise.run.runtime.formats.stored import MASTER, OTHER, STEP, WEIGHT, StoredCheckpoint, StoredTensor

TORCHLIKE = ("torch dcp", "torchtitan", "megatron torch_dist", "megatron fsdp_dtensor")
WRITTEN = ("dcp", "torchtitan", "megatron", "deepspeed-universal", "hugging-face", "shardwise")
_OF_STEP = ("step", "iteration", "global_steps", "global_step")


class TargetLayout(Struct, kw_only=True):
    """Everything a target gets: tensors under its names, and plain values."""

    tensors: dict[str, StoredTensor] = field(default_factory=dict)
    values: dict[str, Any] = field(default_factory=dict)
    step: int | None = None
    left: dict[str, str] = field(default_factory=dict)
    """what is not carried over, and why"""


def layout_for(source: StoredCheckpoint, target: str) -> TargetLayout:
    if target == "megatron" and source.format != "megatron torch_dist":
        raise ValueError(
            f"to: Megatron's names and fused matrices are not made from {source.format}; write one of "
            f"{', '.join(one for one in WRITTEN if one != 'megatron')}"
        )
    if target == "megatron":
        return TargetLayout(tensors=source.tensors, values=source.values, step=source.step)
    found = TargetLayout(step=source.step)
    masters, weights = source.of_kind(MASTER), source.of_kind(WEIGHT)
    trained = {**weights, **masters}
    for name, tensor in trained.items():
        found.tensors[_name(target, WEIGHT, name)] = tensor
    if masters and weights and target != "hugging-face":
        found.left["low-precision weights"] = "the fp32 copies are written; the program rounds them again"
    if target == "hugging-face":
        found.tensors = {name: weights.get(name, one) for name, one in trained.items()}
        _leave_moments(source, found, "safetensors of a model have weights only")
        _leave_values(source, found)
        return found
    for kind in source.moments:
        for name, tensor in source.of_kind(kind).items():
            found.tensors[_name(target, kind, name)] = tensor
    _carry_steps(source, target, found)
    _carry_values(source, target, found)
    return found


def _name(target: str, kind: str, parameter: str) -> str:
    if target == "shardwise":
        return f"parameter.{parameter}" if kind == WEIGHT else f"{kind}.{parameter}"
    if target == "deepspeed-universal":
        return f"zero.{parameter}.fp32" if kind == WEIGHT else f"zero.{parameter}.{kind}"
    if kind == WEIGHT:
        return f"model.{parameter}" if target == "dcp" else parameter
    return f"{'optim' if target == 'dcp' else 'optimizer'}.state.{parameter}.{kind}"


def _carry_steps(source: StoredCheckpoint, target: str, found: TargetLayout) -> None:
    steps = source.of_kind(STEP)
    if target in ("shardwise", "deepspeed-universal"):
        if source.step is None:
            raise ValueError(f"to: {target} needs a step, and the checkpoint states none; write --to hugging-face")
        return
    for name, tensor in steps.items():
        found.tensors[_name(target, STEP, name)] = tensor
    if source.moments and not steps and source.step is not None:
        for name in source.of_kind(source.moments[0]):
            found.values[_name(target, STEP, name)] = float(source.step)


def _carry_values(source: StoredCheckpoint, target: str, found: TargetLayout) -> None:
    others = {name: tensor for name, tensor in source.tensors.items() if tensor.kind == OTHER}
    if target in ("dcp", "torchtitan"):
        settings, schedule = settings_of(source), schedule_of(source)
        for place, (options, names) in enumerate(grouped(settings)):
            if target == "dcp":
                found.values |= {f"optim.param_groups.{place}.{key}": value for key, value in options.items()}
                found.values[f"optim.param_groups.{place}.params"] = names
            else:
                found.values |= {f"optimizer.param_groups.{n}.{k}": v for n in names for k, v in options.items()}
        head = "scheduler" if target == "dcp" else "lr_scheduler"
        found.values |= {f"{head}.{key}": value for key, value in schedule.items()}
        if source.step is not None:
            found.values["step" if target == "dcp" else "train_state.step"] = source.step
        if source.format in TORCHLIKE:
            carried = {name for name in others if not name.startswith("train_state.")}
            found.tensors |= {name: others.pop(name) for name in carried}
        if not settings and source.moments:
            found.left["optimizer settings"] = "the checkpoint does not state them by weight"
    else:
        if settings_of(source) and target == "shardwise":
            found.left["optimizer settings"] = "a run states its own"
        if target == "deepspeed-universal":
            found.values["param_groups"] = [options for options, _ in grouped(settings_of(source))] or [{}]
        if schedule_of(source):
            found.left["schedule"] = "the program that loads states its own"
    for name in others:
        if name not in ("train_state.step",):
            found.left[name] = "not of a weight, and the format has no place for it"
    _leave_values(source, found, known=("scheduler", "lr_scheduler", "optim", "optimizer", *_OF_STEP))


def _leave_moments(source: StoredCheckpoint, found: TargetLayout, why: str) -> None:
    for kind in source.moments:
        found.left[f"{kind} of {len(source.of_kind(kind)):,} weights"] = why
    if source.of_kind(STEP):
        found.left["optimizer steps"] = why
    found.left |= {name: why for name, one in source.tensors.items() if one.kind == OTHER}


def _leave_values(source: StoredCheckpoint, found: TargetLayout, known: tuple[str, ...] = ()) -> None:
    stated = (name for name, value in source.values.items() if value not in (None, {}, [], [None]))
    for head in dict.fromkeys(name.split(".")[0].split("/")[0] for name in stated):
        if head not in known and head not in found.left and not any(one.split(".")[0] == head for one in found.values):
            found.left[head] = "a value of its own program"
