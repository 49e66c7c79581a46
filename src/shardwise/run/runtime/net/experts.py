"""Routed experts: each token visits its `top_k`; copies travel to the ranks that own the experts and back.

Copies are sorted by expert. With expert parallelism blocks of different length are exchanged; with experts cut by
tensor parallelism the copies of all ranks are gathered and the partial outputs scattered. Routing can be forced to be
even, as it is predicted: then every expert gets as many copies, whatever the router says.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from shardwise.run.runtime.net.context import Context
from shardwise.run.runtime.net.kernels import AttachLoss, GatedActivation
from shardwise.run.runtime.net.part import ModulePart
from shardwise.run.runtime.parallel.comm import CONTROL, RankComm, RankGroup
from shardwise.run.runtime.parallel.op import AutogradOp
from shardwise.run.runtime.widened import widened
from shardwise.spec.arch.tensors import Tensor as Shape
from shardwise.spec.model import Experts


class Exchange(AutogradOp):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, comm: RankComm, group: RankGroup, sent: list[int] | None, received: list[int] | None
    ) -> Tensor:
        ctx.comm, ctx.group, ctx.back = comm, group, (received, sent)
        return comm.exchanged(x, group, sent, received)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        return ctx.comm.exchanged(grad, ctx.group, *ctx.back), None, None, None, None


class GatherTokens(AutogradOp):
    @staticmethod
    def forward(ctx: Any, x: Tensor, comm: RankComm, group: RankGroup, lengths: list[int] | None = None) -> Tensor:
        ctx.comm, ctx.group, ctx.lengths = comm, group, lengths
        return comm.gathered(x, group, lengths)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        return ctx.comm.scattered(grad, ctx.group, ctx.lengths), None, None, None


class ScatterTokens(AutogradOp):
    @staticmethod
    def forward(ctx: Any, x: Tensor, comm: RankComm, group: RankGroup, lengths: list[int] | None = None) -> Tensor:
        ctx.comm, ctx.group, ctx.lengths = comm, group, lengths
        return comm.scattered(x, group, lengths)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        return ctx.comm.gathered(grad, ctx.group, ctx.lengths), None, None, None


class ExpertWeights(ModulePart):
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
                inner: Tensor = GatedActivation.apply(F.linear(x, gate[e]), F.linear(x, up[e]), scale)
            else:
                inner = (F.gelu(F.linear(x, up[e])) * scale).to(x.dtype)
            outputs.append(F.linear(inner, down[e]))
        return outputs


def routed(part: ModulePart, weights: ExpertWeights, experts: Experts, x: Tensor) -> Tensor:
    """[sequence, batch, width] through each token's experts."""
    context = part.context
    logits = widened(F.linear(x.flatten(0, 1), *part.pair("router")))
    if context.even_routing:
        copies = len(logits) * experts.top_k
        first = _place(context, context.world.ep.index, context.world.etp.index) * copies
        chosen = (torch.arange(first, first + copies, device=logits.device) % experts.count).view(-1, experts.top_k)
        best = logits.gather(-1, chosen)
    else:
        best, chosen = logits.topk(experts.top_k, dim=-1)
    shares = torch.softmax(best, dim=-1)
    x = _balanced(context, experts, x, logits, chosen)
    flat = x.flatten(0, 1)
    order = torch.argsort(chosen.flatten(), stable=True)
    if context.capacity:
        order = order[_within_capacity(chosen.flatten()[order], context.capacity * len(order) / experts.count)]
    token = order // experts.top_k
    counts = None if context.even_routing else torch.bincount(chosen.flatten()[order], minlength=experts.count)
    if counts is not None and context.visits.kept:
        context.visits.counts.append(counts)
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
    y: Tensor = AttachLoss.apply(x, loss)
    return y


def _visited(
    context: Context, weights: ExpertWeights, experts: Experts, sent: Tensor, shares: Tensor, counts: Tensor | None
) -> Tensor:
    """Copies sorted by expert -> the experts' outputs, in the same order. They cross to the expert's ranks first and
    are gathered there over those that hold a part of it each."""
    comm, ep, etp = context.world.comm, context.world.ep, context.world.etp
    there, everyones = _even_flow(context, experts, len(sent)) if counts is None else _flow(context, experts, counts)
    lengths = [sum(map(sum, rows)) for rows in everyones]
    here = [sum(row) for row in everyones[etp.index]]

    def across(x: Tensor, exchange: RankGroup, gather: RankGroup) -> Tensor:
        if ep.size > 1:
            x = Exchange.apply(x, comm, exchange, there, here)
        return GatherTokens.apply(x, comm, gather, lengths) if etp.size > 1 else x

    scale = across(shares, replace(ep, axis=CONTROL), replace(etp, axis=CONTROL))
    out = weights(across(sent, ep, etp), scale, [row for rows in everyones for row in rows])
    if etp.size > 1:
        out = ScatterTokens.apply(out, comm, etp, lengths)
    back: Tensor = Exchange.apply(out, comm, ep, here, there) if ep.size > 1 else out
    return back


Flow = tuple[list[int], list[list[list[int]]]]


def _flow(context: Context, experts: Experts, counts: Tensor) -> Flow:
    """Copies that go to each expert-parallel rank; and for each rank with a part of the experts that are here, the
    copies it takes from each expert-parallel rank for each expert."""
    comm, ep, etp = context.world.comm, context.world.ep, context.world.etp
    own = experts.count // ep.size
    arriving = counts.view(ep.size, own)
    there = arriving.sum(1).tolist()
    if ep.size > 1:
        arriving = comm.exchanged(counts, replace(ep, axis=CONTROL)).view(ep.size, own)
    if etp.size > 1:
        everyones = comm.gathered(arriving.unsqueeze(0), replace(etp, axis=CONTROL))
        return there, everyones.tolist()
    return there, [arriving.tolist()]


def _place(context: Context, ep: int, etp: int) -> int:
    """Of a rank among those that share the experts: copies are dealt out to experts rank by rank."""
    return ep * context.world.etp.size + etp


def _even_flow(context: Context, experts: Experts, copies: int) -> Flow:
    """The same, known without asking."""
    ep, etp = context.world.ep, context.world.etp
    own = experts.count // ep.size

    def sent(source: int, part: int, owner: int) -> list[int]:
        first = _place(context, source, part) * copies
        # numbers below n that leave the rest e, less one
        return [
            sum(way * ((end - e - 1) // experts.count) for way, end in ((1, first + copies), (-1, first)))
            for e in range(owner * own, owner * own + own)
        ]

    there = [sum(sent(ep.index, etp.index, owner)) for owner in range(ep.size)]
    return there, [[sent(source, part, ep.index) for source in range(ep.size)] for part in range(etp.size)]
