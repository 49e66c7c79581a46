"""Fused attention as CUDA runs it: torch 2.11 takes cuDNN's kernel for 16 bits on Hopper, also with a mask, with dropout
and with fewer key heads; a CPU has one kernel of its own, and none for dropout."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

from shardwise.trace.private import is_fake

WIDEST = 256
NARROW = (torch.bfloat16, torch.float16)


def attention_as_on_cuda(original: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """`original` stays for tensors with values, and where CUDA has no fused kernel either: it is the same plain
    attention there, in 32 bits, as for a bias that is trained."""

    def scaled_dot_product_attention(
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Tensor:
        if torch.is_autocast_enabled("cpu"):
            to = torch.get_autocast_dtype("cpu")
            query, key, value = (t.to(to) if t.dtype is torch.float32 else t for t in (query, key, value))
            if attn_mask is not None and attn_mask.dtype is torch.float32:
                attn_mask = attn_mask.to(to)
        trained = attn_mask is not None and attn_mask.requires_grad
        if trained or not _fused(query, key, value):
            given: dict[str, Any] = {"attn_mask": attn_mask, "dropout_p": dropout_p, "is_causal": is_causal,
                                     "scale": scale, "enable_gqa": enable_gqa}  # fmt: skip
            return original(query, key, value, **given)
        if attn_mask is not None and attn_mask.dtype is torch.bool:
            attn_mask = torch.where(attn_mask, 0.0, float("-inf")).to(query.dtype)
        kept = torch.is_grad_enabled() and any(t.requires_grad for t in (query, key, value))
        run = torch.ops.aten._scaled_dot_product_cudnn_attention
        found: Tensor = run(query, key, value, attn_mask, kept, dropout_p, is_causal, False, scale=scale)[0]
        return found

    return scaled_dot_product_attention


def _fused(query: Tensor, key: Tensor, value: Tensor) -> bool:
    widths = (query.shape[-1], value.shape[-1])
    return (
        is_fake(query)
        and not isinstance(query, DTensor)
        and query.dim() == 4
        and query.dtype in NARROW
        and all(width % 8 == 0 and width <= WIDEST for width in widths)
        and key.shape[2] > 1
    )
