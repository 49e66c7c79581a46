"""`auto` in a user's own script: a plan for a model that is there, the same on every rank."""

import copy
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map

from shardwise.run.auto.answer import understood_source
from shardwise.run.auto.plan import AutoPlan
from shardwise.run.auto.program import UserProgram
from shardwise.run.auto.source import ProgramSource
from shardwise.run.auto.wide import widened
from shardwise.spec.load import cluster_of

MADE_BY_PARALLELIZE = "pp=1,cp=1"
"""stages and shared sequences change the step, not the model alone"""


def auto_plan(
    model: nn.Module,
    batch: Any,
    *,
    on: str,
    fix: Sequence[str] = (),
    loss: Callable[[nn.Module, Any], Tensor] | None = None,
) -> AutoPlan:
    """The fastest split of the model on the cluster that `shardwise.parallelize` can make; the model stays as it is.

    `batch`: the samples of a whole step, those of all ranks. `loss`: what the model makes of it; without one it is
    called with the batch (a dict by name, a tuple in order), and its `loss` or its first output counts. With a process
    group, rank 0 plans and tells the others.
    """
    cluster = cluster_of(on)
    ranks = dist.get_world_size() if dist.is_initialized() else 0
    if ranks not in (0, cluster.gpus):
        raise ValueError(f"on: {on!r} has {cluster.gpus} GPUs and {ranks} ranks run; write a cluster of {ranks}")
    told: list[Any] = [None]
    if not ranks or dist.get_rank() == 0:
        source = _source_of(model, batch, loss or _loss)
        told[0] = _told(lambda: understood_source(source, cluster, [MADE_BY_PARALLELIZE, *fix]).plan)
    if ranks:
        dist.broadcast_object_list(told, src=0)
    found = told[0]
    if isinstance(found, Exception):
        raise found
    plan: AutoPlan = found
    return plan


def _told(plan: Callable[[], AutoPlan]) -> AutoPlan | Exception:
    """What went wrong on rank 0 must reach the others, who wait."""
    try:
        return plan()
    except Exception as error:
        return error if isinstance(error, ValueError) else RuntimeError(f"{type(error).__name__}: {error}")


def _source_of(model: nn.Module, batch: Any, loss: Callable[[nn.Module, Any], Tensor]) -> ProgramSource:
    if not any(True for _ in model.parameters()):
        raise ValueError("model: it has no parameters; write a torch.nn.Module that is trained")
    bare = [name for name, x in model.named_buffers() if x.is_meta]
    if bare:
        raise ValueError(
            f"model: the buffer {bare[0]} has no values; build it on the CPU, or inside "
            "`shardwise.run.auto.weightless.without_weights()`, which leaves buffers theirs"
        )
    batch = tree_map(lambda x: x.detach().cpu() if isinstance(x, Tensor) else x, batch)

    def step(own: nn.Module, _: torch.optim.Optimizer, samples: Any) -> None:
        loss(own, samples).backward()  # type: ignore[no-untyped-call]

    def program(own: nn.Module, batches: list[Any], dtype: str) -> UserProgram:
        return UserProgram((own, torch.optim.SGD(own.parameters(), lr=0.0)), step, batches, dtype)

    def make(steps: int, dtype: str) -> UserProgram:
        wide = dtype == "float64"
        if any(p.is_meta for p in model.parameters()):
            raise ValueError("model: its weights have no values and it is small enough to be run; build it with them")
        own = copy.deepcopy(model).cpu().to(getattr(torch, dtype))
        return program(own, [widened(batch) if wide else batch] * (steps + 1), dtype)

    def outline() -> UserProgram:
        shapes = {id(p): nn.Parameter(torch.empty_like(p, device="meta"), p.requires_grad) for p in model.parameters()}
        own = copy.deepcopy(model, {**shapes, **{id(b): b.detach().cpu().clone() for b in model.buffers()}})
        return program(own, [batch], "float64")

    return ProgramSource(make, outline)


def _loss(model: nn.Module, batch: Any) -> Tensor:
    if isinstance(batch, dict):
        made = model(**batch)
    else:
        made = model(*batch) if isinstance(batch, tuple | list) else model(batch)
    found = made.get("loss") if isinstance(made, dict) else getattr(made, "loss", None)
    if isinstance(found, Tensor):
        return found
    outputs = [x for x in tree_leaves(made) if isinstance(x, Tensor) and x.is_floating_point()]
    if not outputs:
        raise ValueError("loss: the model returns no tensor; write loss=lambda model, batch: ...")
    return outputs[0].mean()
