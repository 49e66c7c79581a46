"""Multi-head latent attention (DeepSeek-V2, arXiv:2405.04434): queries, keys and values come out of narrow latents.

Every tensor-parallel rank makes the latents of its tokens; what enters the products that are cut by heads is a latent,
not an activation of model width. One rotated part of the keys serves all heads.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from shardwise.run.runtime.net.kernels import norm, rotated, turns_at
from shardwise.run.runtime.net.part import ModulePart
from shardwise.run.runtime.parallel.op import AutogradOp
from shardwise.run.runtime.parallel.products import Cut, entering
from shardwise.spec.model import Attention


class SharedByHeads(AutogradOp):
    """A tensor that every rank's heads use: whole in the forward, its gradients summed in the backward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, cut: Cut) -> Tensor:
        ctx.cut = cut
        return cut.whole(x) if cut.sp else x.view_as(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return ctx.cut.summed(grad.contiguous()), None


def latent_heads(part: ModulePart, a: Attention, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values, [sequence, batch, own heads, width] each."""
    context, cut = part.context, part.context.cut
    turns = turns_at(context.positions, a.rope_dim, context.model.rope_theta)
    plain = a.head_dim - a.rope_dim
    if a.q_lora:
        narrow = norm(F.linear(x, *part.pair("q_a")), *part.pair("q_a_norm"), context.model)
        (q,) = entering(narrow, cut, part.product("q_b"))
    else:
        (q,) = entering(x, cut, part.product("q"))
    latent, turning = torch.split(F.linear(x, *part.pair("kv_a")), [a.kv_lora, a.rope_dim], dim=-1)
    (kv,) = entering(norm(latent, *part.pair("kv_a_norm"), context.model), cut, part.product("kv_b"))
    q_plain, q_turning = torch.split(q.view(*q.shape[:-1], -1, a.head_dim), [plain, a.rope_dim], dim=-1)
    each = plain + a.value_dim
    k_plain, v = torch.split(kv.view(*kv.shape[:-1], -1, each), [plain, a.value_dim], dim=-1)
    shared: Tensor = SharedByHeads.apply(turning, cut)
    k_turning = rotated(shared.unsqueeze(2), turns).expand(-1, -1, k_plain.shape[2], -1)
    queries = torch.cat([q_plain, rotated(q_turning, turns)], dim=-1)
    # a copy of the values: a view would keep the keys' part beside it
    return queries, torch.cat([k_plain, k_turning], dim=-1), v.contiguous()
