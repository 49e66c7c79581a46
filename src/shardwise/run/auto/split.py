"""A plan applied to this rank's model: products cut, words shared out, blocks recomputed, the rest sharded by FSDP2."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.utils.checkpoint import checkpoint

from shardwise.run.auto.context import share_tokens
from shardwise.run.auto.cutting import apply_cut, keep_columns
from shardwise.run.auto.expert_homes import house_experts
from shardwise.run.auto.lanes import Lane, RankLane
from shardwise.run.auto.matrices import gather_matrices
from shardwise.run.auto.meshes import COPIES, SHARDS, batch_mesh, sharding_mesh
from shardwise.run.auto.offload import activations_away, state_away
from shardwise.run.auto.plan import AXES, AutoPlan
from shardwise.run.auto.sequence import share_between, sum_outside
from shardwise.run.auto.shares import Shares, expert_names, shares_of
from shardwise.run.auto.stage import SplitStage, connect, ends_of, orders_of, staged


@dataclass
class Applied:
    """What was done to a model on this rank."""

    model: nn.Module
    plan: AutoPlan
    mesh: DeviceMesh
    shares: Shares
    moved: dict[int, tuple[nn.Module, str]] = field(default_factory=dict)
    """where the parameter of this id was, before the model was split: an optimizer made then still holds it"""
    stage: SplitStage | None = None

    def rebind(self, optimizer: torch.optim.Optimizer) -> None:
        """An optimizer that was made for the whole model steps the shares. Sharded and plain ones are kept apart: torch
        steps the tensors of a group together, and not both kinds."""
        groups = []
        for group in optimizer.param_groups:
            now = [p for p in map(self._now, group["params"]) if p is not None]
            for sharded in (False, True):
                chosen = [p for p in now if hasattr(p, "to_local") is sharded]
                if chosen:
                    groups.append({**group, "params": chosen})
        optimizer.param_groups = groups
        if self.plan.degrees.offload in ("optimizer", "both"):
            state_away(optimizer)

    def _now(self, parameter: Tensor) -> Any:
        if id(parameter) not in self.moved:
            return parameter
        owner, name = self.moved[id(parameter)]
        return owner._parameters[name]


def applied(model: nn.Module, plan: AutoPlan, mesh: DeviceMesh) -> Applied:
    _check(plan, mesh)
    gather_matrices()
    degrees = plan.degrees
    moved = {
        id(p): (owner, name) for owner in model.modules() for name, p in owner.named_parameters(recurse=False)
    }  # fmt: skip
    lane = RankLane(mesh["tp"].get_group()) if degrees.tp > 1 else None
    experts = RankLane(batch_mesh(mesh).get_group()) if degrees.ep > 1 else None
    shares = shares_of(model, plan, None if lane is None else lane.group, None if experts is None else experts.group)
    stage = None
    if degrees.pp > 1:
        stage = staged(model, plan, mesh, orders_of(plan), shares.of)
    blocks = plan.blocks if stage is None else plan.own(stage.place)
    if lane is not None:
        cut_model(model, plan, lane, blocks)
    housed: set[nn.Parameter] = set()
    if experts is not None:
        housed = {model.get_parameter(name) for name in expert_names(model, plan)}
        for kind in plan.kinds:
            for name in kind.blocks:
                for home in kind.homes:
                    house_experts(model.get_submodule(name), home, experts, degrees.dp)
    if degrees.recompute:
        for name in blocks:
            _recomputed(model.get_submodule(name))
    if degrees.offload in ("activations", "both"):
        for name in blocks:
            activations_away(model.get_submodule(name))
    if stage is not None:
        stage.ends = ends_of(model, blocks)
    over = sharding_mesh(degrees, mesh)
    if over is not None:
        ends = {} if stage is None else stage.ends
        whole = [p for name, p in model.named_parameters() if name in plan.whole and name not in ends]
        housed.update(whole)
        average_gradients(whole, (batch_mesh(mesh) if degrees.replicas > 1 else over).get_group())
        for name in blocks:
            fully_shard(model.get_submodule(name), mesh=over, reshard_after_forward=True, ignored_params=housed)
        if stage is None:
            # a stage leaves its code in the middle, where a sharded root would wait for the end
            for name in (each for each in plan.roots if each not in blocks):
                fully_shard(model.get_submodule(name), mesh=over, ignored_params=housed)
    if degrees.sp and lane is not None:
        for place in plan.held[0 if stage is None else stage.place]:
            own = plan.stages[place]
            share_between(model.get_submodule(own[0]), model.get_submodule(own[-1]), lane)
    if degrees.cp > 1:
        share_tokens(model, plan, RankLane(mesh["cp"].get_group()))
    if stage is not None:
        connect(stage)
    return Applied(model, plan, mesh, shares, moved, stage)


def reshard(model: nn.Module) -> None:
    """What a forward pass without a backward pass leaves gathered."""
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.reshard()


def cut_model(model: nn.Module, plan: AutoPlan, lane: Lane, blocks: tuple[str, ...]) -> None:
    held: set[object] = set()
    tokens = plan.tokens // lane.size if plan.degrees.sp else 0
    for kind in plan.kinds:
        for name in (each for each in kind.blocks if each in blocks):
            for cut in kind.cuts:
                apply_cut(model.get_submodule(name), cut, lane, held, tokens)
            if tokens:
                sum_outside(model.get_submodule(name), kind.outside, lane, held)
    words = plan.vocabulary
    for name, share in (*((t, share_table) for t in words.tables), *((h, share_head) for h in words.heads)):
        share(model.get_submodule(name), lane, held)


def share_table(table: nn.Module, lane: Lane, held: set[object]) -> None:
    """Words of other ranks are zero here; the sum over the ranks is the row."""
    weight: Any = table._parameters["weight"]
    if weight is None:
        return  # another stage's
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

    table.forward = called


def share_head(head: nn.Module, lane: Lane, held: set[object]) -> None:
    if head._parameters["weight"] is None:
        return  # another stage's
    rows = head.out_features // lane.size  # type: ignore[operator]
    keep_columns(head, tuple(range(lane.rank * rows, (lane.rank + 1) * rows)), held)
    head.register_forward_pre_hook(lambda _, args: (lane.enter(args[0]), *args[1:]))
    head.register_forward_hook(lambda _, __, output: lane.gather(output))


def average_gradients(parameters: Sequence[nn.Parameter], group: Any) -> None:
    """Of parameters that every rank holds whole, as FSDP2 does it for those it shares out."""
    ranks = dist.get_world_size(group)

    def mean(grad: Tensor) -> Tensor:
        total = grad.contiguous().clone()
        dist.all_reduce(total, group=group)
        return total / ranks

    for parameter in parameters:
        if parameter.requires_grad:
            parameter.register_hook(mean)  # type: ignore[no-untyped-call]


def _recomputed(block: nn.Module) -> None:
    forward: Callable[..., Any] = block.forward

    def called(*args: Any, **kwargs: Any) -> Any:
        return checkpoint(forward, *args, use_reentrant=False, **kwargs)

    block.forward = called


def _check(plan: AutoPlan, mesh: DeviceMesh) -> None:
    names = mesh.mesh_dim_names or ()
    wanted = {axis: getattr(plan.degrees, axis) for axis in AXES}
    if plan.degrees.replicas > 1:
        del wanted["dp"]
        wanted |= {COPIES: plan.degrees.replicas, SHARDS: plan.degrees.shards}
    for axis, size in wanted.items():
        found = mesh[axis].size() if axis in names else 1
        if size != found:
            raise ValueError(
                f"mesh: the plan has {axis} {size}, the mesh {found}; write a mesh with an axis {axis!r} of {size}"
            )
