"""What one call of an operator does: a product, fused attention, or bytes that pass through memory."""

from collections.abc import Sequence
from math import prod
from typing import Any

import torch
from torch import Tensor

from shardwise.trace.events import AttentionCall, Pass, Product
from shardwise.trace.passes import pass_of

Work = Product | AttentionCall | Pass

DTYPES = {torch.float32: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16", torch.float64: "fp64"}
FREE = frozenset({"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "detach", "lift_fresh",
                  "_local_scalar_dense", "set_", "resize_", "alias", "_unsafe_view", "lift"})  # fmt: skip
"""no kernel runs"""
ATTENTION = ("_scaled_dot_product", "_flash_attention", "_efficient_attention")
NARROWEST_GROUP = 8
DEPTHWISE_BACKWARD = 1.65
"""time of a gradient of a depthwise convolution over its forward (7 x 7, channels last)"""
MASKS = ("attn_bias", "attn_mask", "bias")
NAMESPACES = ("prim", "profiler", "c10d", "_c10d_functional", "_dtensor")
"""whose operators are no kernels, or messages that carry nothing"""
PRODUCTS = {"mm": (0, 1), "addmm": (1, 2), "bmm": (0, 1), "baddbmm": (1, 2), "_scaled_mm": (0, 1), "_int_mm": (0, 1),
            "_grouped_mm": (0, 1)}  # fmt: skip
"""places of the two factors"""


def dtype_name(dtype: torch.dtype) -> str:
    return DTYPES.get(dtype, str(dtype).removeprefix("torch."))


def size_of(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def runs_nothing(func: Any) -> bool:
    return bool(func._opname in FREE or func.is_view or func.namespace in NAMESPACES)


def name_of(func: Any) -> str:
    """torch's own, but the kernels of fused attention are one kind each."""
    name = str(func._opname)
    if name.startswith(ATTENTION):
        return "attention_backward" if "backward" in name else "attention"
    return name


def work_of(func: Any, args: Sequence[Any], ins: list[Tensor], outs: list[Tensor]) -> Work:
    """`ins`: the tensors among its arguments; `outs`: those it returns or writes into."""
    name = func._opname
    if name in PRODUCTS:
        first, second = (args[place] for place in PRODUCTS[name])
        return (_grouped if name == "_grouped_mm" else _product)(first, second, outs[0])
    if name == "convolution":
        one = _convolution(args[0], args[1], outs[0], transposed=bool(args[6]))
        return _depthwise(one, ins, outs, 1.0) if _is_depthwise(args[1], args[8]) else one
    if name == "convolution_backward":
        both = _convolution_backward(args, outs)
        return _depthwise(both, ins, outs, DEPTHWISE_BACKWARD) if _is_depthwise(args[2], args[9]) else both
    if name.startswith(ATTENTION):
        found = _attention(func, args, ins)
        if found is not None:
            return found
    return pass_of(func, args, ins, outs)


def _product(a: Tensor, b: Tensor, out: Tensor) -> Product:
    *_, m, k = a.shape
    n = b.shape[-1]
    batch = a.shape[0] if a.dim() == 3 else 1
    rows = tuple(_row(matrix) for matrix in (a, b, out))
    return Product(m=m, n=n, k=k, batch=batch, dtype=dtype_name(a.dtype), rows=rows)


def _grouped(a: Tensor, b: Tensor, out: Tensor) -> Product:
    """Experts' products in one kernel, each taken to get the same number of tokens."""
    rows = tuple(_row(matrix) for matrix in (a, b, out))
    dtype = dtype_name(a.dtype)
    if b.dim() == 3:
        experts = b.shape[0]
        return Product(m=-(-a.shape[0] // experts), n=b.shape[-1], k=a.shape[-1], batch=experts, dtype=dtype, rows=rows,
                       grouped="tokens")  # fmt: skip
    experts = out.shape[0]
    return Product(m=a.shape[0], n=b.shape[-1], k=-(-a.shape[1] // experts), batch=experts, dtype=dtype, rows=rows,
                   grouped="weights")  # fmt: skip


def _row(matrix: Tensor) -> float:
    """From one row (or column, when it is transposed) to the next."""
    return max(matrix.stride()[-2:]) * matrix.element_size() / 2


def _convolution(x: Tensor, weight: Tensor, out: Tensor, *, transposed: bool) -> Product:
    """As the product it is computed by: outputs x (kernel x channels of a group) x filters."""
    places = (x if transposed else out).numel() // (x if transposed else out).shape[1]
    filters, inner = weight.shape[0], prod(weight.shape[1:])
    return Product(m=places, n=filters, k=inner, batch=1, dtype=dtype_name(x.dtype), rows=(inner,))


def _convolution_backward(args: Sequence[Any], outs: list[Tensor]) -> Product:
    """Gradients of the input and of the filters cost one forward each; those not asked for cost nothing."""
    gradient, x, weight = args[0], args[1], args[2]
    wanted = sum(1 for place in (0, 1) if args[-1][place])
    one = _convolution(x, weight, gradient, transposed=bool(args[7]))
    assert outs or not wanted
    return Product(m=one.m, n=one.n, k=one.k, batch=max(wanted, 1), dtype=one.dtype, rows=one.rows)


def _is_depthwise(weight: Tensor, groups: int) -> bool:
    """So few channels in a group that no matrix unit is used."""
    return groups > 1 and weight.shape[1] < NARROWEST_GROUP


def _depthwise(one: Product, ins: list[Tensor], outs: list[Tensor], slowed: float) -> Pass:
    bytes_ = sum(map(size_of, (*ins, *outs)))
    return Pass(bytes=bytes_, kind="depthwise", elements=round(one.m * one.n * one.k * one.batch * slowed))


def _attention(func: Any, args: Sequence[Any], ins: list[Tensor]) -> AttentionCall | None:
    """Shapes are [batch, heads, length, width]; the backward has the output's gradient in front."""
    backward = "backward" in func._opname
    names = [argument.name for argument in func._schema.arguments]
    given = dict(zip(names, args, strict=False))
    try:
        query, key, value = given["query"], given["key"], given["value"]
    except KeyError:
        return None
    if query.dim() != 4 or not ins:
        return None
    batch, heads, queries, width = query.shape
    keys, value_width = key.shape[2], value.shape[3]
    # five products in place of two: three as wide as keys, two as wide as values
    each = 3 * width + 2 * value_width if backward else width + value_width
    square = 2.0 * batch * heads * queries * keys * each
    causal = bool(given.get("is_causal"))
    share = 0.5 * (1.0 + 1.0 / keys) if causal else 1.0
    masked = any(isinstance(given.get(place), Tensor) and given[place].numel() for place in MASKS)
    return AttentionCall(flops=square * share, square_flops=square, keys=keys, head_dim=width, groups=batch * heads,
                         backward=backward, dtype=dtype_name(query.dtype), causal=causal, masked=masked,
                         drops=bool(given.get("dropout_p")))  # fmt: skip
