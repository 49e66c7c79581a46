"""Fused attention as CUDA runs it: torch 2.11 takes cuDNN's kernel for 16 bits on Hopper, also with a mask, with
dropout and with fewer key heads; a CPU has one kernel of its own, and none for dropout."""

from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

from shardwise.run.runtime.private import is_fake, without_autocast

WIDEST = 256
NARROW = (torch.bfloat16, torch.float16)
ALIGNED = 16


def attention_as_on_cuda(original: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """`original` stays for tensors with values, and where CUDA has no fused kernel either."""

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
        if (
            is_fake(query)
            and query.dtype in NARROW
            and (
                (trained and cast(Tensor, attn_mask).stride(-1) != 1)
                or (query.dim() == 4 and query.shape[1] != key.shape[1] and not enable_gqa)
            )
        ):
            with without_autocast():
                return _plain(query, key, value, attn_mask, dropout_p, is_causal, scale)
        if _wide(query, key, value) and not trained:
            kept = torch.is_grad_enabled() and any(t.requires_grad for t in (query, key, value))
            run = torch.ops.aten._scaled_dot_product_efficient_attention
            if attn_mask is not None:
                attn_mask = _aligned(attn_mask, query, key)
            wide: Tensor = run(query, key, value, attn_mask, kept, dropout_p, is_causal, scale=scale)[0]
            return wide
        if not _fused(query, key, value):
            given: dict[str, Any] = {"attn_mask": attn_mask, "dropout_p": dropout_p, "is_causal": is_causal,
                                     "scale": scale, "enable_gqa": enable_gqa}  # fmt: skip
            return original(query, key, value, **given)
        if attn_mask is not None and attn_mask.dtype is torch.bool:
            attn_mask = torch.where(attn_mask, 0.0, float("-inf")).to(query.dtype)
        if trained and attn_mask is not None:
            return _with_trained_bias(query, key, value, attn_mask, dropout_p, is_causal, scale)
        kept = torch.is_grad_enabled() and any(t.requires_grad for t in (query, key, value))
        run = torch.ops.aten._scaled_dot_product_cudnn_attention
        found: Tensor = run(query, key, value, attn_mask, kept, dropout_p, is_causal, False, scale=scale)[0]
        return found

    return scaled_dot_product_attention


def _with_trained_bias(
    query: Tensor, key: Tensor, value: Tensor, bias: Tensor, dropout: float, causal: bool, scale: float | None
) -> Tensor:
    """torch's own kernel."""
    bias = _aligned(bias, query, key)
    run = torch.ops.aten._scaled_dot_product_efficient_attention
    found: Tensor = run(query, key, value, bias, True, dropout, causal, scale=scale)[0]
    return found


def _aligned(bias: Tensor, query: Tensor, key: Tensor) -> Tensor:
    """torch's own kernel reads rows of the bias that begin on 16 elements."""
    keys = key.shape[2]
    if bias.dtype is torch.bool:
        bias = torch.where(bias, 0.0, float("-inf")).to(query.dtype)
    if keys % ALIGNED:
        bias = torch.nn.functional.pad(bias, (0, ALIGNED - keys % ALIGNED))[..., :keys]
    return bias.expand(query.shape[0], query.shape[1], query.shape[2], keys)


def _plain(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, dropout: float, causal: bool, scale: float | None
) -> Tensor:
    """What torch runs for a trained bias whose rows do not lie in order, and for heads that share keys without saying
    so: in 32 bits, scores and all."""
    root = (query.shape[-1] ** -0.5 if scale is None else scale) ** 0.5
    wide, keys, values = query.float(), key.float(), value.float()
    if causal:
        mask = torch.ones(query.shape[-2], key.shape[-2], dtype=torch.bool, device=query.device).tril()
    if mask is not None and mask.dtype is torch.bool:
        mask = torch.where(mask, 0.0, float("-inf"))
    scores = (wide * root) @ (keys * root).transpose(-2, -1)
    if mask is None:
        shares = torch.softmax(scores, -1)
    else:
        shares = cast(Tensor, _SafeSoftmax.apply(scores + mask if mask.requires_grad else scores.add_(mask)))  # type: ignore[no-untyped-call]
    if dropout:
        shares = torch.native_dropout(shares, dropout, True)[0]
    found = (shares @ values).to(query.dtype)
    shares.detach().to(query.dtype)  # torch gives the shares too, rounded, to a caller that does not look at them
    return found


class _SafeSoftmax(torch.autograd.Function):
    """Rows without any score give zeros, which costs three more passes."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor) -> Tensor:
        shares = torch.softmax(scores, -1)
        shares = torch.where(torch.isneginf(scores).all(-1, keepdim=True), 0.0, shares)
        ctx.save_for_backward(shares)
        return shares

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        (shares,) = ctx.saved_tensors
        found: Tensor = torch.ops.aten._softmax_backward_data(gradients[0], shares, -1, shares.dtype)
        return found


def _fused(query: Tensor, key: Tensor, value: Tensor) -> bool:
    """cuDNN's kernel."""
    return _by_a_kernel(query, key, value) and _widest(query, value) <= WIDEST


def _wide(query: Tensor, key: Tensor, value: Tensor) -> bool:
    """torch's own, for heads that are too wide for cuDNN's."""
    return _by_a_kernel(query, key, value) and _widest(query, value) > WIDEST and query.shape[1] == key.shape[1]


def _widest(query: Tensor, value: Tensor) -> int:
    return max(query.shape[-1], value.shape[-1])


def _by_a_kernel(query: Tensor, key: Tensor, value: Tensor) -> bool:
    return (
        is_fake(query)
        and not isinstance(query, DTensor)
        and query.dim() == 4
        and query.dtype in NARROW
        and all(width % 8 == 0 for width in (query.shape[-1], value.shape[-1]))
        and key.shape[2] > 1
    )
