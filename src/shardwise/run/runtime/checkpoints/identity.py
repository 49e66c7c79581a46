"""What a checkpoint is of. Layout, device, number of steps and learning rate may change from run to run; what is here
may not, unless the user says so."""

from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import msgspec
import torch

from shardwise.run.runtime.data.source import Source
from shardwise.run.runtime.train.task import TrainingOrder

_NAMES = ("name", "source", "published_params", "context")
"""of a model's fields: what is said of it, not what is trained"""
SHOWN = 3
LAYOUT = ("ranks", "tp")
"""of ranks that roll out: may change from run to run, as that of the trainer's"""


def identity_of(order: TrainingOrder, source: Source) -> dict[str, Any]:
    task, job = order.task, order.task.job
    model = {"layers": task.model.layers, **msgspec.to_builtins(task.model)}
    tuning = {}
    if job.tuning is not None:
        # frozen weights are in no checkpoint
        tuning = {"tuning": msgspec.to_builtins(job.tuning), "init": order.settings.init}
    rollout = {} if order.rollout is None else {"rollout": {
        key: value for key, value in msgspec.to_builtins(order.rollout).items() if key not in LAYOUT
    }}  # fmt: skip
    return {
        **rollout,
        "model": {key: value for key, value in model.items() if key not in _NAMES},
        "data": {"tokenizer": order.settings.tokenizer, "content": source.fingerprint()},
        "batch": {"seq": job.seq, "global_batch": job.global_batch, "precision": job.precision.name},
        "seed": task.seed,
        "optimizer": msgspec.to_builtins(order.settings.optimizer),
        "sync": task.policy.sync,
        "routing": {"capacity": task.capacity, "even_routing": task.even_routing},
        **tuning,
        "software": {"shardwise": _shardwise(), "torch": str(torch.__version__)},
    }


def differences(then: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """In words, the telling ones first; a checkpoint that does not say what it is of differs in nothing."""
    old, new = dict(_flat(then)), dict(_flat(now))
    return [
        f"{name} was {_shown(old.get(name))}, is {_shown(new.get(name))}"
        for name in dict.fromkeys((*new, *old))
        if then and old.get(name) != new.get(name)
    ]


def listed(found: list[str]) -> str:
    more = len(found) - SHOWN
    return "; ".join(found[:SHOWN]) + (f"; and {more} more" if more > 0 else "")


def _flat(value: object, name: str = "") -> Iterator[tuple[str, object]]:
    if isinstance(value, Mapping):
        for key, inside in value.items():
            yield from _flat(inside, f"{name}.{key}" if name else str(key))
    elif isinstance(value, list | tuple) and any(isinstance(one, Mapping) for one in value):
        for number, inside in enumerate(value):
            yield from _flat(inside, f"{name}.{number}")
    else:
        yield name, list(value) if isinstance(value, tuple) else value


def _shown(value: object) -> str:
    text = "absent" if value is None else repr(value) if isinstance(value, str) else str(value)
    return text if len(text) <= 40 else text[:37] + "..."


def _shardwise() -> str:
    try:
        return version("shardwise")
    except PackageNotFoundError:
        return "not installed"
