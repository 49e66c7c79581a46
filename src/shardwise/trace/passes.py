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
PADDED = frozenset({"slice_backward", "select_backward", "diagonal_backward", "constant_pad_nd"})
"""a fill, and a copy into a part of it"""
BY_INPUT = {"topk": "topk", "cumsum": "summed_up", "cumsum_backward": "summed_up", "avg_pool2d": "averaged",
            "_adaptive_avg_pool2d": "averaged", "max_pool2d_with_indices": "pooled",
            "upsample_bilinear2d_backward": "resized_backward", "upsample_bicubic2d_backward": "resized_backward",
            "upsample_nearest2d_backward": "repeated", "upsample_nearest1d_backward": "repeated"}  # fmt: skip
"""time by the elements they read"""
BY_OUTPUT = {"avg_pool2d_backward": "averaged_backward", "_adaptive_avg_pool2d_backward": "averaged_backward",
             "upsample_bilinear2d": "resized", "upsample_bicubic2d": "resized", "upsample_nearest2d": "repeated",
             "upsample_nearest1d": "repeated", "roll": "rolled"}  # fmt: skip
"""time by the elements they write"""
COPIES = frozenset({"clone", "copy_", "_to_copy", "contiguous"})
SCATTERED = frozenset(
    {"index_put", "index_put_", "_index_put_impl_", "scatter", "scatter_", "index_copy", "index_copy_"}
)
ADDED_UP = frozenset({"index_add", "index_add_", "scatter_add", "scatter_add_", "scatter_reduce"})
REDUCTIONS = frozenset({"sum", "mean", "amax", "amin", "max", "min", "var", "var_mean", "std", "linalg_vector_norm",
                        "logsumexp", "all", "any", "argmax", "prod"})  # fmt: skip
NORMS = frozenset({"native_layer_norm", "_fused_rms_norm", "rms_norm"})
NORMS_BACKWARD = frozenset({"native_layer_norm_backward", "_fused_rms_norm_backward", "rms_norm_backward"})
GROUP_NORMS = {"native_group_norm": "group_norm", "native_group_norm_backward": "group_norm_backward"}
OWN = {"native_dropout": "dropout", "_softmax_backward_data": "softmax_backward",
       "_log_softmax_backward_data": "log_softmax_backward", "max_pool2d_with_indices_backward": "pooled_backward",
       "native_batch_norm": "batch_norm", "cudnn_batch_norm": "batch_norm", "_native_batch_norm_legit": "batch_norm",
       "native_batch_norm_backward": "batch_norm_backward", "_batch_norm_with_update": "batch_norm",
       "batch_norm_backward": "batch_norm_backward"}  # fmt: skip
FUSED = ("_fused_adam", "_fused_sgd", "_fused_adagrad")
CURVED = frozenset({"gelu", "gelu_backward", "silu", "tanh", "erf"})
"""in 16 bits their arithmetic shows beside the memory's"""
ON_CHIP_ROW = 2048
"""longest row that torch's softmax keeps in registers, padded to a power of two"""
NARROW_SOFTMAX, NARROW_SOFTMAX_TIME = 64, 1.3
"""rows up to so long, and the time of their elements over that of longer rows"""
ROW_START = 1460
"""elements that a norm could have gone through while it begins a row (rows of 1,024 against rows of 4,096)"""
GRADIENT_ROW_START = 222
"""the same of the gradient of its input (rows of 64 to 256)"""
REGISTER_ROW = 1024
"""a longer row is read again by the gradient of a norm"""
WEIGHT_ROW, ENOUGH_ROWS = 990, 65536
"""elements that could have been gone through for each row that the gradients of a norm's weights add up: one block
adds up 32 columns of all rows, unless there are so many"""
COLUMN_WAIT_S, FEW_COLUMNS_S, LONGEST_WAIT_S = 5e-6, 1e-2, 8e-5
"""in which blocks add up each other's sums of columns: at least, and a column (few columns are cut into many pieces)"""
ONE_BLOCK = {"batch_norm": 287, "batch_norm_backward": 475}
"""elements the whole GPU could have gone through while one block goes through one (128 channels of 262,144)"""
SAME_ROW_S = 1e-6
"""of a sum of rows by index, for each that falls on the same row: they are added one after the other (16,384 on 16)"""
NONZERO_S = 8e-6
"""of `nonzero` beyond one kernel: it counts, then adds up the counts, then writes"""
Named = tuple[str, Pass]


def passes_of(func: Any, args: Sequence[Any], ins: list[Tensor], outs: list[Tensor]) -> list[Named]:
    """The kernels of the call. `ins`: the tensors among its arguments; `outs`: those it returns or writes into."""
    name = str(func._opname)
    if name in NORMS or name in NORMS_BACKWARD:
        return _norm(name, ins)
    if name in PADDED and ins and outs:
        return [("fill_", Pass(_size(outs[0]), "fill")), ("copy_", _copied(ins[0], outs[0]))]
    if name in ("masked_fill", "masked_scatter") and len(ins) > 1:
        # a copy, then the fill in place
        return [
            ("copy_", _copied(ins[0], outs[0])),
            (name + "_", _one(func, name + "_", args, [outs[0], ins[1]], outs)),
        ]
    return [(name, _one(func, name, args, ins, outs))]


def column_sum(bytes_: int, columns: int) -> Pass:
    """Of all rows, each column: blocks must add up each other's sums."""
    wait = COLUMN_WAIT_S + min(FEW_COLUMNS_S / max(columns, 1), LONGEST_WAIT_S)
    return Pass(bytes=bytes_, kind="reduced", wait_s=wait)


def _one(func: Any, name: str, args: Sequence[Any], ins: list[Tensor], outs: list[Tensor]) -> Pass:
    each = list({id(t): t for t in ins}.values())
    if name.startswith(FUSED):
        # the schema lets it write the gradients too
        kept = {id(t) for t in args[1]}
        outs = [t for t in outs if id(t) not in kept]
    moved = _moved(name, each, outs)
    if name in REDUCTIONS and ins and _down_columns(args, ins[0], outs):
        return column_sum(moved, outs[0].numel())
    kind, elements = _way(func, name, args, ins, outs)
    wait = NONZERO_S if name == "nonzero" else _same_rows(args) * SAME_ROW_S if kind == "sorted_sums" else 0.0
    return Pass(bytes=moved, kind=kind, elements=elements, wait_s=wait)


def _copied(source: Tensor, into: Tensor) -> Pass:
    """A copy that takes or leaves gaps."""
    kind, elements = (
        ("stream", 0) if source.is_contiguous() and source.shape == into.shape else ("strided", source.numel())
    )
    return Pass(bytes=2 * _size(source), kind=kind, elements=elements)


def _size(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()


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
    if name == "embedding_dense_backward":
        return written + 2 * read_bytes(ins[0])
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
    if name in GROUP_NORMS:
        return GROUP_NORMS[name], 0
    if name in BY_INPUT:
        return BY_INPUT[name], ins[0].numel()
    if name in BY_OUTPUT:
        return BY_OUTPUT[name], many
    if name == "gather":
        return ("gathered_in_rows" if _in_rows(args) else "gathered"), many
    if name == "sort":
        return ("sorted_rows" if ins[0].dim() > 1 else "sorted"), many
    if name == "embedding_dense_backward":
        return "embedding_backward", ins[0].numel()
    if name in ("_softmax", "_log_softmax"):
        return _softmax(name, out)
    if name in OWN:
        kind = OWN[name]
        if kind.startswith("batch_norm"):
            return _batch_norm(kind, out)
        return kind, many if kind == "dropout" else 0
    if name in SCATTERED or name in ADDED_UP:
        source = next((t.numel() for t in ins[::-1] if t.is_floating_point()), many)
        if name in ADDED_UP:
            if name.startswith("index"):
                return "added_up", source
            return ("scattered_in_rows" if _in_rows(args) else "scattered_sums"), source
        return ("sorted_sums" if _accumulates(args) else "scattered"), source
    if name in REDUCTIONS and ins:
        return "reduced", 0
    if name in ("cat", "stack"):
        return ("joined", 0) if all(t.is_contiguous() for t in ins) else ("joined_pieces", many)
    if name in COPIES and ins:
        return _copy(ins[-1], out)
    if torch.Tag.pointwise in func.tags:
        return _pointwise(name, ins, out)
    return "stream", 0


def _in_rows(args: Sequence[Any]) -> bool:
    """Along the last axis, where what is picked lies close together."""
    x, axis = args[0], args[1]
    return bool(axis % max(x.dim(), 1) == x.dim() - 1)


def _same_rows(args: Sequence[Any]) -> int:
    """How many of the rows an `index_put` adds fall on each that there is."""
    into, indices = args[0], args[1]
    places: int = prod(size for size, index in zip(into.shape, indices, strict=False) if index is not None)
    rows: int = max((index.numel() for index in indices if index is not None), default=0)
    return rows // max(places, 1)


def _accumulates(args: Sequence[Any]) -> bool:
    return any(arg is True for arg in args)


def _norm(name: str, ins: list[Tensor]) -> list[Named]:
    """Rows that do not lie one behind the other are copied first."""
    x = ins[0]
    width = x.shape[-1]
    rows, size = x.numel() // max(width, 1), _size(x)
    found: list[Named] = [
        ("copy_", Pass(2 * size, *_copy(t, torch.empty(t.shape, dtype=t.dtype, device="meta"))))
        for t in ins
        if t.shape == x.shape and not t.is_contiguous()
    ]
    if name in NORMS:
        return [*found, (name, Pass(2 * size, "norm", x.numel() + rows * ROW_START))]
    kind = "norm_backward" if width <= REGISTER_ROW else "long_norm_backward"
    found.append((name, Pass(3 * size, kind, rows * GRADIENT_ROW_START)))
    if any(t.dim() == 1 and t.shape[0] == width for t in ins):
        found.append((name, Pass(2 * size, "norm_weights", rows * WEIGHT_ROW if rows < ENOUGH_ROWS else 0)))
    return found


def _batch_norm(kind: str, out: Tensor) -> tuple[str, int]:
    """cuDNN's, or torch's own in bf16, which has one block for a channel unless channels lie next to each other."""
    if out.dtype is not torch.bfloat16:
        return "cudnn_" + kind, 0
    if out.dim() < 2 or out.stride()[1] == 1:
        return kind, 0
    return kind, out.numel() // max(out.shape[1], 1) * ONE_BLOCK[kind]


def _softmax(name: str, out: Tensor) -> tuple[str, int]:
    row = out.shape[-1] if out.shape else 1
    if row > ON_CHIP_ROW:
        return ("softmax" if name == "_softmax" else "log_softmax"), out.numel()
    padded = out.numel() // max(row, 1) * 2 ** max(row - 1, 0).bit_length()
    return "short_softmax", round(padded * (NARROW_SOFTMAX_TIME if row <= NARROW_SOFTMAX else 1.0))


def _down_columns(args: Sequence[Any], x: Tensor, outs: list[Tensor]) -> bool:
    """Along rows all lies together; down columns it does not."""
    axes = args[1] if len(args) > 1 else None
    given = [axes] if isinstance(axes, int) else list(axes) if isinstance(axes, (list, tuple)) else []
    if outs[0].numel() <= 1 or not given or not x.dim():
        return False
    inner = min((axis for axis in range(x.dim()) if x.shape[axis] > 1), key=lambda axis: x.stride()[axis], default=0)
    return all(axis % x.dim() != inner for axis in given)


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
