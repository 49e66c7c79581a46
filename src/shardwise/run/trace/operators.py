"""What one call of an operator does: a product, fused attention, or bytes that pass through memory."""

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from shardwise.run.trace import convolutions
from shardwise.run.trace.dtypes import dtype_name
from shardwise.run.trace.events import AttentionCall, Convolution, Pass, Product
from shardwise.run.trace.passes import passes_of

Work = Product | Convolution | AttentionCall | Pass

FREE = frozenset({"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "detach", "lift_fresh",
                  "_local_scalar_dense", "set_", "resize_", "alias", "_unsafe_view", "lift"})  # fmt: skip
"""no kernel runs"""
QUIET = FREE - {"_unsafe_view", "set_", "resize_", "lift"}
"""neither a kernel nor a view"""
ATTENTION = ("_scaled_dot_product", "_flash_attention", "_efficient_attention")
MASKS = ("attn_bias", "attn_mask", "bias")
NAMESPACES = ("prim", "profiler", "c10d", "_c10d_functional", "_dtensor")
"""whose operators are no kernels, or messages that carry nothing"""
PRODUCTS = {"mm": (0, 1), "addmm": (1, 2), "bmm": (0, 1), "baddbmm": (1, 2), "_scaled_mm": (0, 1), "_int_mm": (0, 1),
            "_grouped_mm": (0, 1)}  # fmt: skip
"""places of the two factors"""


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


def works_of(func: Any, args: Sequence[Any], ins: list[Tensor], outs: list[Tensor]) -> list[tuple[str, Work]]:
    """The kernels CUDA runs for the call, by name. `ins`: the tensors among its arguments; `outs`: those it returns or
    writes into."""
    name = func._opname
    if name in PRODUCTS:
        first, second = (args[place] for place in PRODUCTS[name])
        return [(name, (_grouped if name == "_grouped_mm" else _product)(first, second, outs[0]))]
    if name == "convolution":
        return [*convolutions.forward(args, outs[0])]
    if name == "convolution_backward":
        return [*convolutions.backward(args)]
    if name.startswith(ATTENTION):
        found = _attention(func, args, ins)
        if found is not None:
            return [(name_of(func), found)]
    return [*passes_of(func, args, ins, outs)]


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
                         backward=backward, dtype=dtype_name(query.dtype), causal=causal, queries=queries,
                         masked=masked,
                         drops=bool(given.get("dropout_p")),
                         trains_bias="efficient" in func._opname and query.element_size() == 2)  # fmt: skip
