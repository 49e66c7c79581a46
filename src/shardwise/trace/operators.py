"""What one call of an operator does: a product, fused attention, or bytes that pass through memory."""

from collections.abc import Sequence
from math import prod
from typing import Any

import torch
from torch import Tensor

from shardwise.trace.events import AttentionCall, Pass, Product

Work = Product | AttentionCall | Pass

DTYPES = {torch.float32: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16", torch.float64: "fp64"}
FREE = frozenset({"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "detach", "lift_fresh",
                  "_local_scalar_dense", "set_", "resize_", "alias", "_unsafe_view", "lift"})  # fmt: skip
"""no kernel runs"""
LOOKED_UP = frozenset({"embedding", "index_select", "gather", "index"})
"""reads only what it writes"""
ATTENTION = ("_scaled_dot_product", "_flash_attention", "_efficient_attention")
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
        return _product(first, second, outs[0])
    if name == "convolution":
        return _convolution(args[0], args[1], outs[0], transposed=bool(args[6]))
    if name == "convolution_backward":
        return _convolution_backward(args, outs)
    if name.startswith(ATTENTION):
        found = _attention(func, args, ins)
        if found is not None:
            return found
    return Pass(_moved(name, ins, outs))


def _product(a: Tensor, b: Tensor, out: Tensor) -> Product:
    *_, m, k = a.shape
    n = b.shape[-1]
    batch = a.shape[0] if a.dim() == 3 else 1
    rows = tuple(_row(matrix) for matrix in (a, b, out))
    return Product(m=m, n=n, k=k, batch=batch, dtype=dtype_name(a.dtype), rows=rows)


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
    share = 0.5 * (1.0 + 1.0 / keys) if given.get("is_causal") else 1.0
    return AttentionCall(flops=square * share, square_flops=square, keys=keys, head_dim=width, groups=batch * heads,
                     backward=backward, dtype=dtype_name(query.dtype))  # fmt: skip


def _moved(name: str, ins: list[Tensor], outs: list[Tensor]) -> int:
    written = sum(map(size_of, outs))
    if name in LOOKED_UP:
        return 2 * written
    if name == "embedding_dense_backward":
        return written + 2 * size_of(ins[0])
    return written + sum(map(size_of, ins))
