"""The norm of all gradients of a split model, each number counted once, for steps that clip it."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from shardwise.auto.meshes import shard_place
from shardwise.auto.split import Applied
from shardwise.auto.stage import ranks_with
from shardwise.trace.private import swapped_everywhere

NORM_BYTES = 8
"""of the message that adds the squares of all ranks"""


class Clip:
    """What a step asked of `clip_grad_norm_`."""

    def __init__(self, most: float, order: float = 2.0) -> None:
        self.most, self.order = most, order


@contextmanager
def clipping(asked: Callable[[Any, Clip], Any]) -> Iterator[None]:
    """Calls of torch's function inside are answered by `asked`."""

    def called(parameters: Any, max_norm: float, norm_type: float = 2.0, **_: Any) -> Any:
        return asked(parameters, Clip(float(max_norm), float(norm_type)))

    with swapped_everywhere(torch.nn.utils.clip_grad_norm_, called):
        yield


def clip_whole(done: Applied, clip: Clip) -> Tensor:
    """As torch's function, over all ranks: what several ranks hold is counted once."""
    if clip.order != 2.0:
        raise ValueError(f"clip_grad_norm_: norm_type {clip.order} of a split model is not known; write 2")
    degrees = done.plan.degrees
    total = torch.zeros((), dtype=torch.float64)
    held = []
    for name, parameter in done.model.named_parameters():
        if parameter.grad is None:
            continue
        local: Any = parameter.grad
        sharded = hasattr(local, "to_local")
        local = local.to_local() if sharded else local
        held.append(local)
        share = done.shares.of.get(name)
        apart = sharded or (share is not None and share.group is not None)
        copies = (1 if share is not None else degrees.tp) * (degrees.replicas if apart else degrees.dp * degrees.cp)
        copies *= ranks_with(done.plan, name)
        total += (local.detach().double().square() / _held_by(done, name, local, sharded=sharded)).sum() / copies
    if degrees.ranks > 1:
        dist.all_reduce(total)
    norm = total.sqrt()
    scale = min(1.0, clip.most / (float(norm) + 1e-6))
    for local in held:
        local.mul_(scale)
    return norm


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
