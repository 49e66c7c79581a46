"""Which part of every parameter this rank holds, and the whole of it put together again."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from shardwise.run.auto.expert_homes import own_experts
from shardwise.run.auto.plan import AutoPlan
from shardwise.run.auto.products import output_axis


@dataclass(frozen=True)
class Share:
    axis: int
    indices: tuple[tuple[int, ...], ...]
    """of each rank that shares the products"""
    length: int
    """of the whole axis"""
    group: Any = None
    """the ranks that share it where they are not those that share products: experts"""

    def holders(self, rank: int) -> list[int]:
        """Of each of the rank's own: how many ranks hold it."""
        held = Counter(index for own in self.indices for index in own)
        return [held[index] for index in self.indices[rank]]


@dataclass
class Shares:
    """Of a model that was split, by the name of the parameter."""

    of: dict[str, Share] = field(default_factory=dict)
    group: Any = None
    """the ranks that share products; None where one rank holds them whole"""

    def own(self, name: str, whole: Tensor, shard: tuple[int, int] | None) -> Tensor:
        """This rank's part of a whole tensor. `shard`: (place, how many) among those that FSDP2 shards over."""
        share = self.of.get(name)
        group = self.group if share is None else share.group or self.group
        if share is not None and group is not None:
            own = torch.tensor(share.indices[dist.get_rank(group)], device=whole.device)
            whole = whole.index_select(share.axis, own)
        if shard is None:
            return whole
        length = -(-whole.shape[0] // shard[1])  # rows in equal parts; the last ranks get what is left
        return whole[shard[0] * length : (shard[0] + 1) * length]

    def whole(self, name: str, held: Tensor) -> Tensor:
        """Every rank of the axes that share it must ask."""
        full = held.full_tensor() if hasattr(held, "full_tensor") else held
        share = self.of.get(name)
        group = self.group if share is None else share.group or self.group
        if share is None or group is None:
            return full.detach()
        parts = [torch.empty_like(full, memory_format=torch.contiguous_format) for _ in share.indices]
        dist.all_gather(parts, full.detach().contiguous(), group=group)
        shape = list(full.shape)
        shape[share.axis] = share.length
        whole = full.new_zeros(shape)
        for part, indices in zip(parts, share.indices, strict=True):
            whole.index_copy_(share.axis, torch.tensor(indices, device=whole.device), part)
        return whole


def expert_names(model: nn.Module, plan: AutoPlan) -> dict[str, int]:
    """Parameters of experts that ranks share out, and how many experts there are."""
    names = {id(p): name for name, p in model.named_parameters()}
    return {
        names[id(model.get_parameter(f"{block}.{home.module}.{name}"))]: home.count
        for kind in plan.kinds for home in kind.homes for block in kind.blocks for name in home.parameters
        if plan.degrees.ep > 1
    }  # fmt: skip


def shares_of(model: nn.Module, plan: AutoPlan, group: Any, experts: Any = None) -> Shares:
    """Asked before the model is split, while its modules still say how large they are. `experts`: the group of the
    ranks that share them out."""
    found = Shares(group=group)
    for name, count in expert_names(model, plan).items():
        found.of[name] = Share(0, own_experts(count, plan.degrees.ep), count, experts)
    ranks = plan.degrees.tp
    if ranks == 1:
        return found
    names = {id(p): name for name, p in model.named_parameters()}

    def note(owner: str, parameter: str, axis: int, indices: tuple[tuple[int, ...], ...] | None = None) -> None:
        tensor = getattr(model.get_submodule(owner), parameter, None)
        if tensor is None:
            return
        length = tensor.shape[axis]
        even = tuple(tuple(range(r * length // ranks, (r + 1) * length // ranks)) for r in range(ranks))
        found.of[names[id(tensor)]] = Share(axis, indices or even, length)

    for kind in plan.kinds:
        for block in kind.blocks:
            for cut in kind.cuts:
                for column in cut.columns:
                    axis = output_axis(model.get_submodule(f"{block}.{column.module}"))
                    note(f"{block}.{column.module}", "weight", axis, column.indices)
                    note(f"{block}.{column.module}", "bias", 0, column.indices)
                for norm in cut.norms:
                    note(f"{block}.{norm.module}", "weight", 0, norm.indices)
                    note(f"{block}.{norm.module}", "bias", 0, norm.indices)
                for name in (*cut.sums, *([cut.row] if cut.row else [])):
                    note(f"{block}.{name}", "weight", 1 - output_axis(model.get_submodule(f"{block}.{name}")))
                for stack in cut.stacks:
                    owner, _, parameter = f"{block}.{stack.parameter}".rpartition(".")
                    note(owner, parameter, stack.axis, stack.indices)
    for name in (*plan.vocabulary.tables, *plan.vocabulary.heads):
        note(name, "weight", 0)
    for name in plan.vocabulary.heads:
        note(name, "bias", 0)
    return found
