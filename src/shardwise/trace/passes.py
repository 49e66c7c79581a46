"""What an operator that is no product moves, and in which way: the way decides how much of the bandwidth it reaches.

A kernel that goes over dense tensors of one shape and one type loads 16 bytes at a time and is bound by the memory. One
that broadcasts, strides or mixes types goes element by element and is bound by its own instructions, however narrow the
elements are. `rates.py` has the speed of each way.
"""

from collections.abc import Sequence
from math import prod
from typing import Any

import torch
from torch import Tensor

from shardwise.trace.events import Pass

FILLS = frozenset({"zeros", "zeros_like", "new_zeros", "ones", "ones_like", "new_ones", "full", "full_like", "new_full",
                   "fill_", "zero_", "arange", "scalar_tensor", "eye", "nll_loss_backward", "nll_loss2d_backward",
                   "_foreach_zero_", "rand", "randn", "randint", "bernoulli_", "uniform_", "normal_"})  # fmt: skip
"""written, nothing read: what they are made like, or of, is not looked at"""
LOOKED_UP = frozenset({"embedding", "index_select", "gather", "index"})
"""reads only what it writes"""
PICKED = frozenset({"nll_loss_forward", "nll_loss2d_forward"})
"""one number of each row"""
PADDED = frozenset({"slice_backward", "select_backward", "diagonal_backward"})
"""a fill, and a copy into a part of it"""
COPIES = frozenset({"clone", "copy_", "_to_copy", "contiguous"})
SCATTERED = frozenset(
    {"index_put", "index_put_", "_index_put_impl_", "scatter", "scatter_", "index_copy", "index_copy_"}
)
ADDED_UP = frozenset({"index_add", "index_add_", "scatter_add", "scatter_add_", "scatter_reduce"})
REDUCTIONS = frozenset({"sum", "mean", "amax", "amin", "max", "min", "var", "var_mean", "std", "linalg_vector_norm",
                        "logsumexp", "all", "any", "argmax", "prod"})  # fmt: skip
NORMS = {"native_layer_norm": "norm", "_fused_rms_norm": "norm", "rms_norm": "norm", "native_group_norm": "norm",
         "native_layer_norm_backward": "norm_backward", "_fused_rms_norm_backward": "norm_backward",
         "rms_norm_backward": "norm_backward", "native_group_norm_backward": "norm_backward"}  # fmt: skip
OWN = {"native_dropout": "dropout", "topk": "sorted", "sort": "sorted",
       "_softmax_backward_data": "softmax_backward", "_log_softmax_backward_data": "log_softmax_backward",
       "max_pool2d_with_indices": "pooled", "max_pool2d_with_indices_backward": "pooled",
       "native_batch_norm": "batch_norm", "cudnn_batch_norm": "batch_norm", "_native_batch_norm_legit": "batch_norm",
       "native_batch_norm_backward": "batch_norm_backward", "_batch_norm_with_update": "batch_norm",
       "batch_norm_backward": "batch_norm_backward"}  # fmt: skip
FUSED = ("_fused_adam", "_fused_sgd", "_fused_adagrad")
CURVED = frozenset({"gelu", "gelu_backward", "silu", "tanh", "erf"})
"""in 16 bits their arithmetic shows beside the memory's"""
ON_CHIP_ROW = 1024
"""longest row that torch's softmax keeps in registers"""
ROW_START = 1460
"""elements that a norm could have gone through while it begins a row (rows of 1,024 against rows of 4,096)"""
TURNED_FIRST = 8
"""elements that a norm could have gone through while one is copied into order"""
NARROW_ROW, FEW_ROWS = 2048, 65536
"""torch adds up the gradients of a norm's weights with few blocks below both"""


def pass_of(func: Any, args: Sequence[Any], ins: list[Tensor], outs: list[Tensor]) -> Pass:
    """`ins`: the tensors among its arguments; `outs`: those it returns or writes into."""
    name = str(func._opname)
    each = list({id(t): t for t in ins}.values())
    if name.startswith(FUSED):
        # the schema lets it write the gradients too
        kept = {id(t) for t in args[1]}
        outs = [t for t in outs if id(t) not in kept]
    kind, elements = _way(func, name, args, ins, outs)
    return Pass(bytes=_moved(name, each, outs), kind=kind, elements=elements)


def read_bytes(tensor: Tensor) -> int:
    """What lies in memory: an axis that was expanded lies there once."""
    held = prod(size for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if stride or size == 1)
    return held * tensor.element_size()


def _moved(name: str, ins: list[Tensor], outs: list[Tensor]) -> int:
    written = sum(t.numel() * t.element_size() for t in outs)
    if name in FILLS:
        return written
    if name in LOOKED_UP:
        return 2 * written
    if name in PICKED:
        return sum(t.numel() * t.element_size() for t in ins[1:])
    if name in PADDED:
        return written + 2 * sum(map(read_bytes, ins))
    if name == "embedding_dense_backward":
        return written + 2 * read_bytes(ins[0])
    if name == "masked_fill":
        # a copy, then the fill in place
        return 3 * written + sum(map(read_bytes, ins))
    return written + sum(map(read_bytes, ins))


def _way(func: Any, name: str, args: Sequence[Any], ins: list[Tensor], outs: list[Tensor]) -> tuple[str, int]:
    """(kind, elements it goes through one by one)."""
    if name.startswith("_foreach"):
        return "list", sum(t.numel() for t in args[0])
    if name.startswith(FUSED):
        return "fused_update", sum(t.numel() for t in args[0])
    if not outs:
        return "stream", 0
    out = max(outs, key=Tensor.numel)
    many = out.numel()
    if name in FILLS:
        return "fill", 0
    if name in NORMS:
        return _norm(NORMS[name], ins)
    if name == "embedding_dense_backward":
        return "embedding_backward", ins[0].numel()
    if name in ("_softmax", "_log_softmax"):
        return _softmax(name, out), many
    if name in OWN:
        return OWN[name], many if OWN[name] in ("dropout", "sorted") else 0
    if name in SCATTERED or name in ADDED_UP:
        source = next((t.numel() for t in ins[::-1] if t.is_floating_point()), many)
        if name in ADDED_UP:
            return "added_up", source
        return ("sorted_sums" if _accumulates(args) else "scattered"), source
    if name in REDUCTIONS and ins:
        return _reduction(args, ins[0], outs), 0
    if name == "cat":
        return ("joined", 0) if all(t.is_contiguous() for t in ins) else ("joined_pieces", many)
    if name in COPIES and ins:
        return _copy(ins[-1], out)
    if torch.Tag.pointwise in func.tags:
        return _pointwise(name, ins, out)
    return "stream", 0


def _accumulates(args: Sequence[Any]) -> bool:
    return any(arg is True for arg in args)


def _norm(kind: str, ins: list[Tensor]) -> tuple[str, int]:
    """Rows that do not lie one behind the other are copied first."""
    x = ins[0]
    width = x.shape[-1]
    copied = sum(t.numel() for t in ins if t.shape == x.shape and not t.is_contiguous()) * TURNED_FIRST
    if kind == "norm":
        return "norm", x.numel() + x.numel() // max(width, 1) * ROW_START + copied
    few = width <= NARROW_ROW and x.numel() // max(width, 1) < FEW_ROWS
    return ("narrow_norm_backward" if few else "norm_backward"), copied


def _softmax(name: str, out: Tensor) -> str:
    if out.shape and out.shape[-1] <= ON_CHIP_ROW:
        return "short_softmax"
    return "softmax" if name == "_softmax" else "log_softmax"


def _reduction(args: Sequence[Any], x: Tensor, outs: list[Tensor]) -> str:
    """Along rows, or down columns, where blocks must add up each other's sums."""
    axes = args[1] if len(args) > 1 else None
    given = [axes] if isinstance(axes, int) else list(axes) if isinstance(axes, (list, tuple)) else []
    whole = outs[0].numel() <= 1 or not given
    return "reduced" if whole or any(axis % x.dim() == x.dim() - 1 for axis in given) else "reduced_columns"


def _copy(source: Tensor, out: Tensor) -> tuple[str, int]:
    if source.numel() <= 1 or out.numel() <= 1:
        return "stream", 0
    wider = out.element_size() > source.element_size()
    if _same_layout(source, out):
        return ("strided", out.numel()) if wider else ("stream", 0)
    inner = source.stride()[-1] if source.dim() else 1
    outer = out.stride()[-1] if out.dim() else 1
    turned = (inner > 1 and source.shape[-1] > 1) != (outer > 1 and out.shape[-1] > 1)
    return ("turned" if turned else "strided"), out.numel()


def _pointwise(name: str, ins: list[Tensor], out: Tensor) -> tuple[str, int]:
    operands = [t for t in ins if t.numel() > 1 or t.dim()]
    floats = {t.dtype for t in (*operands, out) if t.is_floating_point()}
    if all(_same_layout(t, out) for t in operands):
        if len(floats) > 1:
            return "mixed", out.numel()
        return ("curved" if name in CURVED and out.element_size() == 2 else "stream"), 0
    if len(floats) > 1:
        return "mixed", out.numel()
    if len(operands) == 1:
        return "strided", out.numel()
    broadcast = all(_same_layout(t, out) or (t.is_contiguous() and t.shape != out.shape) for t in operands)
    return ("broadcast" if broadcast else "mixed"), out.numel()


def _same_layout(first: Tensor, second: Tensor) -> bool:
    """Element i of one lies where element i of the other does, and nothing lies between."""
    if first.shape != second.shape:
        return False
    ones = [(a, b) for a, b, size in zip(first.stride(), second.stride(), first.shape, strict=True) if size > 1]
    return all(a == b for a, b in ones) and _dense(first)


def _dense(tensor: Tensor) -> bool:
    reached = 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return reached == tensor.numel()
