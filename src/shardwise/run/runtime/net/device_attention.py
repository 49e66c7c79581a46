"""The GPU's attention kernels on [sequence, batch, heads, width], the one torch would choose itself: cuDNN's or flash.

Both take the output and the log-sum-exp of a whole softmax when they go backward over a part of its keys, and then give
that part's share of the gradients.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend


@dataclass(frozen=True)
class How:
    """What the backward pass must know of the forward one besides its tensors."""

    cudnn: bool
    causal: bool
    lengths: tuple[Any, ...]
    seeds: tuple[Tensor, ...]


def has_kernel(q: Tensor, v: Tensor) -> bool:
    """They want 16-bit numbers and heads of a multiple of 8 up to 256, for values as for queries."""
    width = q.shape[-1]
    return q.is_cuda and q.element_size() == 2 and width % 8 == 0 and width <= 256 and v.shape[-1] == width


def kernel_forward(q: Tensor, k: Tensor, v: Tensor, *, causal: bool) -> tuple[Tensor, Tensor, How]:
    """(output, log-sum-exp [batch, heads, sequence], how)"""
    views = _heads_first(q), _heads_first(k), _heads_first(v)
    choice, aten = torch._fused_sdp_choice(*views, is_causal=causal, enable_gqa=True), torch.ops.aten
    cudnn = choice == SDPBackend.CUDNN_ATTENTION.value
    if cudnn:
        found = aten._scaled_dot_product_cudnn_attention(*views, None, True, 0.0, causal)
    else:
        found = aten._scaled_dot_product_flash_attention(*views, 0.0, causal)
    out, lse, *lengths, seed, offset, _ = found
    # the kernel's output may lie batch by batch: its copy in our order is kept, not both
    return _sequence_first(out), lse.view(out.shape[:3]), How(cudnn, causal, tuple(lengths), (seed, offset))


def kernel_backward(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, how: How
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients by queries, keys and values."""
    views, aten = tuple(map(_heads_first, (grad, q, k, v, out))), torch.ops.aten
    if how.cudnn:
        found = aten._scaled_dot_product_cudnn_attention_backward(
            *views, lse.unsqueeze(-1), *how.seeds, None, *how.lengths, 0.0, how.causal
        )
    else:
        found = aten._scaled_dot_product_flash_attention_backward(
            *views, lse, *how.lengths, 0.0, how.causal, *how.seeds
        )
    by_q, by_k, by_v = map(_sequence_first, found)
    return by_q, by_k, by_v


def _heads_first(x: Tensor) -> Tensor:
    """[sequence, batch, heads, width] -> [batch, heads, sequence, width]"""
    return x.permute(1, 2, 0, 3)


def _sequence_first(x: Tensor) -> Tensor:
    return x.permute(2, 0, 1, 3).contiguous()
