"""Routed experts: each token visits its `top_k`; copies travel to the ranks that own the experts and back.

Copies are sorted by expert. With expert parallelism blocks of different length are exchanged; with experts cut by
tensor parallelism the copies of all ranks are gathered and the partial outputs scattered.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from shardwise.arch.tensors import Tensor as Shape
from shardwise.runtime.net.context import Context
from shardwise.runtime.net.kernels import Attached, Gated
from shardwise.runtime.net.part import Part
from shardwise.runtime.parallel.comm import CONTROL, Comm, Group
from shardwise.runtime.parallel.op import Op
from shardwise.spec.model import Experts


class Exchange(Op):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, comm: Comm, group: Group, sent: list[int] | None, received: list[int] | None
    ) -> Tensor:
        ctx.comm, ctx.group, ctx.back = comm, group, (received, sent)
        return comm.exchanged(x, group, sent, received)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        return ctx.comm.exchanged(grad, ctx.group, *ctx.back), None, None, None, None


class Gathered(Op):
    @staticmethod
    def forward(ctx: Any, x: Tensor, comm: Comm, group: Group) -> Tensor:
        ctx.comm, ctx.group = comm, group
        return comm.gathered(x, group)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        return ctx.comm.scattered(grad, ctx.group), None, None


class Scattered(Op):
    @staticmethod
    def forward(ctx: Any, x: Tensor, comm: Comm, group: Group) -> Tensor:
        ctx.comm, ctx.group = comm, group
        return comm.scattered(x, group)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        return ctx.comm.gathered(grad, ctx.group), None, None


class ExpertWeights(Part):
    """The experts this rank owns; a unit of its own, since other ranks hold the same of them than of the rest."""

    def __init__(self, shapes: Iterable[Shape], prefix: str, context: Context, experts: Experts) -> None:
        super().__init__(shapes, prefix, context)
        self.glu = experts.glu

    def forward(self, x: Tensor, scale: Tensor, counts: Sequence[Sequence[int]]) -> Tensor:
        """Rows come from several ranks, those of each sorted by expert; an expert sees its rows from all of them."""
        ranks, own = len(counts), len(counts[0])
        if ranks == 1:
            return torch.cat(self._each(torch.split(x, list(counts[0])), torch.split(scale, list(counts[0]))))
        pieces = torch.split(torch.arange(len(x), device=x.device), [count for row in counts for count in row])
        by_expert = torch.cat([pieces[rank * own + e] for e in range(own) for rank in range(ranks)])
        totals = [sum(row[e] for row in counts) for e in range(own)]
        y = torch.cat(self._each(torch.split(x[by_expert], totals), torch.split(scale[by_expert], totals)))
        return y[torch.argsort(by_expert)]

    def _each(self, rows: Sequence[Tensor], scales: Sequence[Tensor]) -> list[Tensor]:
        up, down = self.weight("expert.up").unbind(0), self.weight("expert.down").unbind(0)
        gate = self.weight("expert.gate").unbind(0) if self.glu else up
        outputs = []
        for e, (x, scale) in enumerate(zip(rows, scales, strict=True)):
            if self.glu:
                inner: Tensor = Gated.apply(F.linear(x, gate[e]), F.linear(x, up[e]), scale)
            else:
                inner = (F.gelu(F.linear(x, up[e])) * scale).to(x.dtype)
            outputs.append(F.linear(inner, down[e]))
        return outputs


def routed(part: Part, weights: ExpertWeights, experts: Experts, x: Tensor) -> Tensor:
    """[sequence, batch, width] through each token's experts."""
    context = part.context
    logits = F.linear(x.flatten(0, 1), *part.pair("router")).float()
    best, chosen = logits.topk(experts.top_k, dim=-1)
    shares = torch.softmax(best, dim=-1)
    x = _balanced(context, experts, x, logits, chosen)
    flat = x.flatten(0, 1)
    order = torch.argsort(chosen.flatten(), stable=True)
    if context.capacity:
        order = order[_within_capacity(chosen.flatten()[order], context.capacity * len(order) / experts.count)]
    token = order // experts.top_k
    counts = torch.bincount(chosen.flatten()[order], minlength=experts.count)
    out = _visited(context, weights, experts, flat[token], shares.flatten()[order].unsqueeze(-1), counts)
    return torch.zeros_like(flat).index_put((token,), out.to(flat.dtype), accumulate=True).view_as(x)


def _within_capacity(sorted_experts: Tensor, most: float) -> Tensor:
    first = torch.searchsorted(sorted_experts, sorted_experts)
    return (torch.arange(len(sorted_experts), device=first.device) - first < max(int(most), 1)).nonzero().flatten()


def _balanced(context: Context, experts: Experts, x: Tensor, logits: Tensor, chosen: Tensor) -> Tensor:
    """Adds the loss that evens the experts' use, sequence by sequence: share of visits x mean probability."""
    world, (tokens, batch) = context.world, x.shape[:2]
    visits = F.one_hot(chosen, experts.count).sum(1).view(tokens, batch, -1).sum(0).to(logits.dtype)
    shards = (*((world.tp,) if context.cut.sp else ()), world.cp)
    for group in shards:
        world.comm.all_reduce(visits, replace(group, axis=CONTROL))
    mean = torch.softmax(logits, dim=-1).view(tokens, batch, -1).sum(0) / context.seq
    share = visits * (experts.count / (context.seq * experts.top_k))
    loss = context.balance * (share * mean).sum() * context.seq / context.world.loss_tokens
    y: Tensor = Attached.apply(x, loss)
    return y


def _visited(
    context: Context, weights: ExpertWeights, experts: Experts, sent: Tensor, shares: Tensor, counts: Tensor
) -> Tensor:
    """Copies sorted by expert -> the experts' outputs, in the same order."""
    world = context.world
    comm, ep, etp = world.comm, world.ep, world.etp
    if etp.size > 1:
        everyone = comm.gathered(counts.view(1, -1), replace(etp, axis=CONTROL)).tolist()
        gathered = Gathered.apply(sent, comm, etp)
        scale = Gathered.apply(shares, comm, replace(etp, axis=CONTROL))
        out: Tensor = Scattered.apply(weights(gathered, scale, everyone), comm, etp)
        return out
    if ep.size == 1:
        found: Tensor = weights(sent, shares, [counts.tolist()])
        return found
    steer, own = replace(ep, axis=CONTROL), experts.count // ep.size
    arriving = comm.exchanged(counts, steer).view(ep.size, own)
    there, here = counts.view(ep.size, own).sum(1).tolist(), arriving.sum(1).tolist()
    tokens = Exchange.apply(sent, comm, ep, there, here)
    scale = Exchange.apply(shares, comm, steer, there, here)
    back: Tensor = Exchange.apply(weights(tokens, scale, arriving.tolist()), comm, ep, here, there)
    return back
