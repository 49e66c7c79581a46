"""Other cuts by tensor parallelism: a vocabulary table on one rank, and attention with gathered queries and keys.

Both send more than Megatron's cuts; they are the textbook's, to be compared.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from shardwise.run.runtime.net.context import Context
from shardwise.run.runtime.parallel.comm import RankComm, RankGroup
from shardwise.run.runtime.parallel.op import AutogradOp
from shardwise.run.runtime.parallel.products import Cut


class BroadcastLookup(AutogradOp):
    """The first tensor-parallel rank looks the rows up and sends them to all. `table` is empty on the others, which
    take part in the backward all the same."""

    @staticmethod
    def forward(ctx: Any, tokens: Tensor, table: Tensor, width: int, cut: Cut) -> Tensor:
        ctx.save_for_backward(tokens)
        ctx.cut, ctx.shape = cut, table.shape
        rows = F.embedding(tokens, table) if len(table) else table.new_empty((*tokens.shape, width))
        whole = cut.comm.broadcast(rows, cut.tp)
        return whole.chunk(cut.tp.size)[cut.tp.index].clone() if cut.sp else whole

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor, None, None]:
        (tokens,) = ctx.saved_tensors
        whole = ctx.cut.whole(grad)
        by_table = whole.new_zeros(ctx.shape)
        if len(by_table):
            by_table.index_add_(0, tokens.flatten(), whole.flatten(0, 1))
        return None, by_table, None, None


def broadcast_rows(context: Context, tokens: Tensor, table: Tensor | None) -> Tensor:
    width = context.model.hidden
    if table is None:
        table = torch.empty((0, width), device=tokens.device, requires_grad=True)
    x: Tensor = BroadcastLookup.apply(tokens, table, width, context.cut)
    return x


class GatheredColumns(AutogradOp):
    """[..., own columns] -> [..., everyone's columns]; gradients of all of them are summed and scattered."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, comm: RankComm, group: RankGroup) -> Tensor:
        ctx.comm, ctx.group = comm, group
        joined = comm.gathered(x.contiguous(), group).view(group.size, *x.shape)
        return joined.movedim(0, -2).flatten(-2)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        size = ctx.group.size
        parts = grad.reshape(*grad.shape[:-1], size, -1).movedim(-2, 0)
        return ctx.comm.scattered(parts.flatten(0, 1), ctx.group), None, None


def gathered_heads(context: Context, x: Tensor, width: int) -> Tensor:
    """Columns of queries or keys -> [sequence, batch, heads, width]: everyone's are gathered, and those that belong to
    the own columns of the values are used."""
    tp = context.world.tp
    whole: Tensor = GatheredColumns.apply(x, context.world.comm, tp)
    heads = whole.view(*whole.shape[:-1], -1, width)
    return heads.chunk(tp.size, dim=2)[tp.index].contiguous()
