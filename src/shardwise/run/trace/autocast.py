"""Autocast as CUDA has it. A CPU leaves norms, powers and softmax in 16 bits, where CUDA widens them: what a step keeps
for its backward, and how often it rounds, would be another program's."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from shardwise.run.runtime.private import autocast_kernels, without_autocast

WIDENED = (
    "acos", "asin", "cosh", "erfinv", "exp", "expm1", "log", "log10", "log2", "log1p", "reciprocal", "rsqrt", "sinh",
    "tan", "pow.Tensor_Scalar", "pow.Tensor_Tensor", "pow.Scalar", "softplus", "layer_norm", "native_layer_norm",
    "group_norm", "cosine_similarity", "nll_loss", "nll_loss2d", "kl_div", "l1_loss", "smooth_l1_loss", "huber_loss",
    "mse_loss", "binary_cross_entropy_with_logits", "cdist", "logsumexp", "upsample_nearest1d", "upsample_nearest2d",
    "upsample_nearest3d", "_upsample_nearest_exact1d", "_upsample_nearest_exact2d", "upsample_linear1d",
    "upsample_bilinear2d", "_upsample_bilinear2d_aa", "upsample_trilinear3d", "upsample_bicubic2d",
    "_upsample_bicubic2d_aa",
)  # fmt: skip
"""run in 32 bits (ATen/autocast_mode.h of torch 2.11, AT_FORALL_FP32, which has no RMS norm yet)"""
SUMMED = ("softmax.int", "log_softmax.int", "sum", "sum.dim_IntList", "cumsum", "cumprod", "prod", "prod.dim_int",
          "linalg_vector_norm", "linalg_matrix_norm", "linalg_matrix_norm.str_ord")  # fmt: skip
"""take 16 bits and give 32 (AT_FORALL_FP32_SET_OPT_DTYPE)"""
LEFT = ("cross_entropy_loss",)
"""widened on a CPU alone"""
NARROW = (torch.bfloat16, torch.float16)


def _wide(value: Any) -> Any:
    if isinstance(value, Tensor) and value.dtype in NARROW:
        return value.to(torch.float32)
    return [_wide(one) for one in value] if isinstance(value, list) else value


def _widening(operator: Callable[..., Any]) -> Callable[..., Any]:
    def kernel(*args: Any, **kwargs: Any) -> Any:
        with without_autocast():
            return operator(*map(_wide, args), **{name: _wide(value) for name, value in kwargs.items()})

    return kernel


def _summing(operator: Callable[..., Any]) -> Callable[..., Any]:
    def kernel(x: Tensor, *args: Any, **kwargs: Any) -> Any:
        asked = any(isinstance(value, torch.dtype) for value in (*args, *kwargs.values()))
        with without_autocast():
            if not asked and x.dtype in NARROW:
                kwargs["dtype"] = torch.float32
            return operator(x, *args, **kwargs)

    return kernel


def _taken_apart(operator: Any) -> Callable[..., Any]:
    def kernel(*args: Any, **kwargs: Any) -> Any:
        return operator.decompose(*args, **kwargs)

    return kernel


@contextmanager
def autocast_as_on_cuda() -> Iterator[None]:
    def found(name: str) -> Any:
        base, _, overload = name.partition(".")
        return getattr(getattr(torch.ops.aten, base), overload or "default")

    kernels = {name: _widening(found(name)) for name in WIDENED} | {name: _summing(found(name)) for name in SUMMED}
    kernels |= {name: _taken_apart(found(name)) for name in LEFT}
    with autocast_kernels(kernels):
        yield
