"""Which tensors a checkpoint must have, by the model, optimizer and precision that its own manifest states. Without
torch: the names are the planner's."""

import re
from collections.abc import Iterator
from typing import Any

import msgspec

from shardwise.plugins.optimizers import UpdateRule, update_rule
from shardwise.run.runtime.checkpoints.manifest import DamagedCheckpoint, Manifest, TensorForm, refuse_unlike
from shardwise.spec.arch.tensors import Tensor
from shardwise.spec.arch.tuned import trained_embedding, trained_head, trained_layer, tuned
from shardwise.spec.job import PRECISIONS
from shardwise.spec.model import Model
from shardwise.spec.tuning import Tuning
from shardwise.work.updates import kind_of

WORKER = "worker "
_WORKER = re.compile(WORKER + r"(\d+)\.")
SYNC = "sync."
"""before the names of what a strategy of data parallelism keeps on each rank"""
ROLLOUT = "rollout.answers"
"""tables of answers that wait for their step"""


def refuse_unstated(manifest: Manifest) -> None:
    """DamagedCheckpoint where its tensors are not exactly those of what it states; one that states no model may hold
    any."""
    if "model" not in manifest.of:
        return
    stated = stated_forms(manifest.of)
    for prefix in _workers(manifest):
        own = {
            name.removeprefix(prefix): form
            for name, form in manifest.tensors.items()
            if name.startswith(prefix) and not (manifest.of.get("sync") and name.startswith(SYNC))
        }
        refuse_unlike(own, stated, "its own model", prefix)
        if extra := sorted(set(own) - set(stated)):
            raise DamagedCheckpoint(f"{prefix}{extra[0][:80]} is not of its own model")


def _workers(manifest: Manifest) -> list[str]:
    """Before the names of each worker's tensors, under a strategy in which they hold different ones."""
    numbers = {int(match[1]) for name in manifest.tensors if (match := _WORKER.match(name))}
    if not (numbers and manifest.of.get("sync")):
        return [""]
    if gone := set(range(len(numbers))) - numbers:
        raise DamagedCheckpoint(f"every tensor of worker {min(gone)} is missing")
    if alone := sorted(name for name in manifest.tensors if not name.startswith(SYNC) and not _WORKER.match(name)):
        raise DamagedCheckpoint(f"{alone[0][:80]} is of no worker")
    return [f"{WORKER}{number}." for number in sorted(numbers)]


def stated_forms(of: dict[str, Any]) -> dict[str, TensorForm]:
    try:
        model = msgspec.convert({key: value for key, value in of["model"].items() if key != "layers"}, _Stated)
        tuning = msgspec.convert(of["tuning"], Tuning) if "tuning" in of else None
        tensors = dict(_tensors(tuned(model, tuning)))
        optimizer, precision = of["optimizer"], PRECISIONS[of["batch"]["precision"]]
        rule = update_rule(optimizer["name"])
        moments = rule.name != "sgd-m" or bool(optimizer["momentum"])
        waiting = dict(_waiting(of.get("rollout"), of["batch"]))
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, AssertionError):
        raise DamagedCheckpoint("the model, batch or optimizer it states cannot be read") from None
    dtype = "float32" if max(precision.param_bytes, precision.master_bytes) >= 4 else "bfloat16"
    return {
        f"{kind}.{name}": TensorForm(dtype=dtype, shape=shape)
        for name, tensor in tensors.items()
        for kind, shape in (("parameter", tensor.shape), *(_kept(rule, tensor) if moments else ()))
    } | waiting


def _waiting(rollout: Any, batch: Any) -> Iterator[tuple[str, TensorForm]]:
    """Of each answer: tokens of prompt and answer, a log-probability for each token of the longest, its length."""
    if rollout is not None and rollout["lag"]:
        width = 2 * batch["seq"] - rollout["prompt_tokens"] + 1
        yield ROLLOUT, TensorForm(dtype="float64", shape=(rollout["lag"], batch["global_batch"], width))


def _kept(rule: UpdateRule, tensor: Tensor) -> Iterator[tuple[str, tuple[int, ...]]]:
    """What an optimizer keeps of a tensor, with an expert's state beside the others'."""
    of = kind_of(tensor)
    covered = rule.covers(of)
    mine = rule if covered or not rule.rest else update_rule(rule.rest)
    yield from ((kind, tensor.shape) for kind in mine.kept_of(of))
    if covered and of != "vector":
        experts = tensor.shape[:1] if tensor.split == "expert" else ()
        yield from ((kind, (*experts, *shape)) for kind, shape in mine.stored(*tensor.shape[-2:]).items())


class _Stated(Model, frozen=True, kw_only=True):
    """A model without what does not change its tensors (identity.py leaves it out)."""

    name: str = ""


def _tensors(model: Model) -> Iterator[tuple[str, Tensor]]:
    def named(prefix: str, tensors: tuple[Tensor, ...]) -> Iterator[tuple[str, Tensor]]:
        return ((prefix + tensor.role, tensor) for tensor in tensors)

    yield from named("embedding.", trained_embedding(model))
    for index, kind in enumerate(model.pattern):
        yield from named(f"layers.{index}.", trained_layer(model, kind))
    yield from named("head.", trained_head(model))
