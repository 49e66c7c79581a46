"""The norm of all gradients of a split model, each number counted once: what torch's own clipping uses for it."""

import math
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any
from weakref import ref

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.utils import clip_grad

from shardwise.run.auto.meshes import shard_place
from shardwise.run.auto.split import Applied
from shardwise.run.auto.stage import ranks_with
from shardwise.run.runtime.private import replace_everywhere, swapped_everywhere

NORM_BYTES = 8
"""of the message that adds the squares of all ranks"""
_SPLIT: "list[ref[Applied]]" = []
"""models of this process whose gradients torch's own clipping must not norm by itself"""


BY_VALUE = 0.0
"""in place of a norm's order"""


class Clip:
    """What a step asked of `clip_grad_norm_`, or of `clip_grad_value_`."""

    def __init__(self, most: float, order: float, names: Collection[str]) -> None:
        self.most, self.order, self.names = most, order, frozenset(names)


@contextmanager
def clipping(seen: Callable[[Any, float, float], None]) -> Iterator[None]:
    """`seen` gets what torch's functions are called with inside: parameters, largest norm or value, order."""
    original, by_value = torch.nn.utils.clip_grad_norm_, torch.nn.utils.clip_grad_value_

    def called(parameters: Any, max_norm: float, norm_type: float = 2.0, *args: Any, **kwargs: Any) -> Any:
        parameters = [parameters] if isinstance(parameters, Tensor) else list(parameters)
        seen(parameters, float(max_norm), float(norm_type))
        return original(parameters, max_norm, norm_type, *args, **kwargs)

    def valued(parameters: Any, clip_value: float, *args: Any, **kwargs: Any) -> None:
        parameters = [parameters] if isinstance(parameters, Tensor) else list(parameters)
        seen(parameters, float(clip_value), BY_VALUE)
        by_value(parameters, clip_value, *args, **kwargs)

    with swapped_everywhere(original, called), swapped_everywhere(by_value, valued):
        yield


def norm_over_ranks(done: Applied) -> None:
    """From now on torch's clipping of this model's gradients, under whatever name, takes the norm over all ranks."""
    if not _SPLIT:
        for own, name in ((_total_norm, "_get_total_norm"), (_scale, "_clip_grads_with_norm_")):
            replace_everywhere(getattr(clip_grad, name), own(getattr(clip_grad, name)))
    alive = [each for each in _SPLIT if each() is not None and each() is not done]
    _SPLIT[:] = [*alive, ref(done)]


def _total_norm(original: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def called(
        tensors: Any, norm_type: float = 2.0, error_if_nonfinite: bool = False, foreach: bool | None = None
    ) -> Tensor:
        tensors = [tensors] if isinstance(tensors, Tensor) else list(tensors)
        given = set(map(id, tensors))
        for done in filter(None, (each() for each in _SPLIT)):
            names = {name for name, p in done.model.named_parameters() if id(p.grad) in given or id(p) in given}
            if not names:
                continue
            if len(names) < len(given):
                raise ValueError(
                    "clip_grad_norm_: it got gradients of a split model and others; clip them one after the other"
                )
            norm = whole_norm(done, names, float(norm_type))
            if error_if_nonfinite and not bool(norm.isfinite()):
                raise RuntimeError(f"clip_grad_norm_: the norm of all ranks' gradients is {norm.item()}")
            return norm
        return original(tensors, norm_type, error_if_nonfinite, foreach)

    return called


def _scale(original: Callable[..., None]) -> Callable[..., None]:
    def called(parameters: Any, max_norm: float, total_norm: Tensor, foreach: bool | None = None) -> None:
        parameters = [parameters] if isinstance(parameters, Tensor) else list(parameters)
        given = set(map(id, parameters))
        models = [done.model for done in filter(None, (each() for each in _SPLIT))]
        if any(id(p) in given for model in models for p in model.parameters()):
            _shrink(parameters, float(max_norm), total_norm)
        else:
            original(parameters, max_norm, total_norm, foreach)

    return called


@torch.no_grad()
def _shrink(parameters: Collection[Any], most: float, norm: Tensor) -> None:
    """As torch does, on this rank's part of each gradient: shards and whole ones cannot be scaled in one list."""
    scale = torch.clamp(most / (norm + 1e-6), max=1.0)
    for local in (_local(p.grad) for p in parameters if p.grad is not None):
        local.mul_(scale.to(local.device, local.dtype))


def clip_whole(done: Applied, clip: Clip) -> None:
    """What one process clipped, over all ranks."""
    if clip.order == BY_VALUE:
        own = [p.grad for name, p in done.model.named_parameters() if name in clip.names and p.grad is not None]
        for local in map(_local, own):
            local.clamp_(-clip.most, clip.most)
        return
    _shrink([p for name, p in done.model.named_parameters() if name in clip.names], clip.most,
            whole_norm(done, clip.names, clip.order))  # fmt: skip


@torch.no_grad()
def whole_norm(done: Applied, names: Collection[str], order: float) -> Tensor:
    """Over all ranks: what several ranks hold is counted once."""
    degrees, largest = done.plan.degrees, order == math.inf
    device = next(done.model.parameters()).device
    total = torch.zeros((), dtype=torch.float64, device=device)
    for name, parameter in done.model.named_parameters():
        if parameter.grad is None or name not in names:
            continue
        sharded = hasattr(parameter.grad, "to_local")
        local = _local(parameter.grad)
        size = local.detach().double().abs()
        if largest:
            total = torch.maximum(total, size.max()) if size.numel() else total
            continue
        share = done.shares.of.get(name)
        apart = sharded or (share is not None and share.group is not None)
        copies = (1 if share is not None else degrees.tp) * (degrees.replicas if apart else degrees.dp * degrees.cp)
        copies *= ranks_with(done.plan, name)
        total += (size**order / _held_by(done, name, local, sharded=sharded)).sum() / copies
    if degrees.ranks > 1:
        dist.all_reduce(total, op=dist.ReduceOp.MAX if largest else dist.ReduceOp.SUM)
    return total if largest else total ** (1 / order)


def _local(x: Any) -> Tensor:
    local: Tensor = x.to_local() if hasattr(x, "to_local") else x
    return local


def _held_by(done: Applied, name: str, local: Tensor, *, sharded: bool) -> Tensor | int:
    """How many ranks that share products hold each number: more than one where heads share keys."""
    share = done.shares.of.get(name)
    if share is None or share.group is not None:
        return 1
    ranks = share.holders(dist.get_rank(done.shares.group))
    if max(ranks) == 1:
        return 1
    if sharded and share.axis == 0:  # FSDP2 shares rows out in equal parts
        place, count = shard_place(done.plan.degrees, done.mesh)
        ranks = ranks[math.ceil(len(ranks) / count) * place :][: local.shape[0]]
    shape = [1] * local.dim()
    shape[share.axis] = len(ranks)
    return torch.tensor(ranks, dtype=torch.float64, device=local.device).view(shape)
