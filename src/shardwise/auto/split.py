"""A plan applied to this rank's model: products cut, words shared out, blocks recomputed, the rest sharded by FSDP2."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.utils.checkpoint import checkpoint

from shardwise.auto.cutting import apply_cut, keep_columns
from shardwise.auto.lanes import Lane, RankLane
from shardwise.auto.plan import AXES, AutoPlan, Degrees
from shardwise.auto.shares import Shares, shares_of


@dataclass
class Applied:
    """What was done to a model on this rank."""

    model: nn.Module
    plan: AutoPlan
    mesh: DeviceMesh
    shares: Shares
    moved: dict[int, tuple[nn.Module, str]] = field(default_factory=dict)
    """where the parameter of this id was, before the model was split: an optimizer made then still holds it"""

    def rebind(self, optimizer: torch.optim.Optimizer) -> None:
        """An optimizer that was made for the whole model steps the shares."""
        for group in optimizer.param_groups:
            group["params"] = [self._now(p) for p in group["params"]]

    def _now(self, parameter: Tensor) -> Any:
        if id(parameter) not in self.moved:
            return parameter
        owner, name = self.moved[id(parameter)]
        return getattr(owner, name)


def mesh_of(degrees: Degrees, device: str) -> DeviceMesh:
    """One axis for every kind of sharing, in the order in which ranks are numbered."""
    return init_device_mesh(device, tuple(getattr(degrees, axis) for axis in AXES), mesh_dim_names=AXES)


def parallelize(model: nn.Module, plan: AutoPlan, mesh: DeviceMesh) -> nn.Module:
    """The model with this rank's share of the plan applied, changed in place: FSDP2 over `dp`, cut products over `tp`,
    recomputed blocks. `mesh` has the axes that the plan uses, by name. An optimizer is made afterwards."""
    degrees = plan.degrees
    if degrees.pp > 1 or degrees.cp > 1:
        raise ValueError(f"plan: {degrees.text} changes the step, not the model alone; run it with `shardwise auto`")
    return applied(model, plan, mesh).model


def applied(model: nn.Module, plan: AutoPlan, mesh: DeviceMesh) -> Applied:
    _check(plan, mesh)
    degrees = plan.degrees
    moved = {
        id(p): (owner, name) for owner in model.modules() for name, p in owner.named_parameters(recurse=False)
    }  # fmt: skip
    lane = RankLane(mesh["tp"].get_group()) if degrees.tp > 1 else None
    shares = shares_of(model, plan, None if lane is None else lane.group)
    if lane is not None:
        cut_model(model, plan, lane)
    if degrees.recompute:
        for name in plan.blocks:
            _recomputed(model.get_submodule(name))
    if degrees.dp > 1:
        for name in plan.blocks:
            fully_shard(model.get_submodule(name), mesh=mesh["dp"])
        fully_shard(model, mesh=mesh["dp"])
    return Applied(model, plan, mesh, shares, moved)


def cut_model(model: nn.Module, plan: AutoPlan, lane: Lane) -> None:
    held: set[int] = set()
    for kind in plan.kinds:
        for name in kind.blocks:
            for cut in kind.cuts:
                apply_cut(model.get_submodule(name), cut, lane, held)
    words = plan.vocabulary
    for name in words.tables:
        _share_table(model.get_submodule(name), lane, held)
    for name in words.heads:
        _share_head(model.get_submodule(name), lane, held)


def _share_table(table: nn.Module, lane: Lane, held: set[int]) -> None:
    """Words of other ranks are zero here; the sum over the ranks is the row."""
    weight: Any = table.weight
    if id(weight) not in held:
        held.add(id(weight))
        weight.data = weight.data.chunk(lane.size, 0)[lane.rank].contiguous().clone()
    rows: int = weight.shape[0]
    first = lane.rank * rows
    padding = table.padding_idx
    table.num_embeddings = rows  # type: ignore[assignment]
    if isinstance(padding, int):
        table.padding_idx = padding - first if first <= padding < first + rows else None  # type: ignore[assignment]
    forward = table.forward

    def called(words: Tensor) -> Tensor:
        others = (words < first) | (words >= first + rows)
        found = forward((words - first).masked_fill(others, 0))
        return lane.leave(found.masked_fill(others.unsqueeze(-1), 0.0))

    table.forward = called  # type: ignore[method-assign]


def _share_head(head: nn.Module, lane: Lane, held: set[int]) -> None:
    rows = head.out_features // lane.size  # type: ignore[operator]
    keep_columns(head, tuple(range(lane.rank * rows, (lane.rank + 1) * rows)), held)
    head.register_forward_pre_hook(lambda _, args: (lane.enter(args[0]), *args[1:]))
    head.register_forward_hook(lambda _, __, output: lane.gather(output))


def _recomputed(block: nn.Module) -> None:
    forward: Callable[..., Any] = block.forward

    def called(*args: Any, **kwargs: Any) -> Any:
        return checkpoint(forward, *args, use_reentrant=False, **kwargs)

    block.forward = called  # type: ignore[method-assign]


def _check(plan: AutoPlan, mesh: DeviceMesh) -> None:
    names = mesh.mesh_dim_names or ()
    for axis in AXES:
        size = getattr(plan.degrees, axis)
        found = mesh[axis].size() if axis in names else 1
        if size != found:
            raise ValueError(f"mesh: the plan has {axis} {size}, the mesh {found}; write a mesh with an axis {axis!r} of {size}")
