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

from shardwise.run.trace.events import Pass
from shardwise.run.trace.layouts import WARP, elements_found, lines_touched, same_layout
from shardwise.run.trace.on_host import all_on_host
from shardwise.run.trace.reductions import reduced

FILLS = frozenset({"zeros", "zeros_like", "new_zeros", "ones", "ones_like", "new_ones", "full", "full_like", "new_full",
                   "fill_", "zero_", "arange", "scalar_tensor", "eye", "nll_loss_backward", "nll_loss2d_backward",
                   "_foreach_zero_", "rand", "randn", "randint", "bernoulli_", "uniform_", "normal_"})  # fmt: skip
"""written, nothing read: what they are made like, or of, is not looked at"""
LOOKED_UP = frozenset({"embedding", "index_select", "gather", "index"})
"""reads only what it writes"""
ROWS_LOOKED_UP, LOOKED_UP_ROW = ("embedding", "index_select"), 157
"""and elements that could have been gone through for each row (12 to 32 elements a row)"""
PICKED = frozenset({"nll_loss_forward", "nll_loss2d_forward"})
"""one number of each row"""
PADDED = frozenset({"slice_backward", "select_backward", "diagonal_backward", "constant_pad_nd"})
"""a fill, and a copy into a part of it"""
BY_INPUT = {"avg_pool2d": "averaged", "flip": "strided", "tril": "trimmed", "triu": "trimmed",
            "_adaptive_avg_pool2d": "averaged", "max_pool2d_with_indices": "pooled",
            "upsample_bilinear2d_backward": "resized_backward", "upsample_bicubic2d_backward": "resized_backward",
            "upsample_nearest2d_backward": "repeated", "upsample_nearest1d_backward": "repeated"}  # fmt: skip
"""time by the elements they read"""
BY_OUTPUT = {"avg_pool2d_backward": "averaged_backward", "_adaptive_avg_pool2d_backward": "averaged_backward",
             "upsample_bilinear2d": "resized", "upsample_bicubic2d": "resized", "upsample_nearest2d": "repeated",
             "upsample_nearest1d": "repeated"}  # fmt: skip
"""time by the elements they write"""
COPIES = frozenset({"clone", "copy_", "_to_copy", "contiguous"})
SCATTERED = frozenset(
    {"index_put", "index_put_", "_index_put_impl_", "scatter", "scatter_", "index_copy", "index_copy_"}
)
ADDED_UP = frozenset({"index_add", "index_add_", "scatter_add", "scatter_add_", "scatter_reduce"})
REDUCTIONS = frozenset({"sum", "mean", "amax", "amin", "max", "min", "var", "var_mean", "std", "linalg_vector_norm",
                        "all", "any", "argmax", "prod"})  # fmt: skip
NORMS = frozenset({"native_layer_norm", "_fused_rms_norm", "rms_norm"})
NORMS_BACKWARD = frozenset({"native_layer_norm_backward", "_fused_rms_norm_backward", "rms_norm_backward"})
GROUP_NORMS = {"native_group_norm": "group_norm", "native_group_norm_backward": "group_norm_backward"}
OWN = {"native_dropout": "dropout", "_softmax_backward_data": "softmax_backward",
       "_log_softmax_backward_data": "log_softmax_backward", "max_pool2d_with_indices_backward": "pooled_backward",
       "native_batch_norm": "batch_norm", "cudnn_batch_norm": "batch_norm", "_native_batch_norm_legit": "batch_norm",
       "native_batch_norm_backward": "batch_norm_backward", "_batch_norm_with_update": "batch_norm",
       "batch_norm_backward": "batch_norm_backward"}  # fmt: skip
FUSED = ("_fused_adam", "_fused_sgd", "_fused_adagrad")
CURVED = {"gelu": "gelu", **dict.fromkeys(("gelu_backward", "silu", "tanh", "erf"), "curved")}
"""in 16 bits their arithmetic shows beside the memory's"""
ON_CHIP_ROW = 2048
"""longest row that torch's softmax keeps in registers, padded to a power of two"""
NARROW_SOFTMAX, NARROW_SOFTMAX_TIME = 64, 1.3
"""rows up to so long, and the time of their elements over that of longer rows"""
ROW_START, NORM_S = {2: 1320, 4: 1760}, 2.5e-6
"""elements that a norm could have gone through while it begins a row, by bytes of an element, and its latency (64 to
2,048 elements)"""
GRADIENT_ROW_START = 222
"""the same of the gradient of its input (rows of 64 to 256)"""
REGISTER_ROW = 1024
"""a longer row is read again by the gradient of a norm"""
WEIGHT_ROW, ENOUGH_ROWS = 990, 65536
"""elements that could have been gone through for each row that the gradients of a norm's weights add up: one block
adds up 32 columns of all rows, unless there are more than so many"""
ONE_BLOCK = {"batch_norm": 240, "cudnn_batch_norm": 130, "batch_norm_backward": 480, "cudnn_batch_norm_backward": 410}
"""elements the whole GPU could have gone through while one block goes through one (16 to 2,048 channels)"""
SAME_ROW_S, WIDE_ROW_S, WIDE_ROW = 5e-7, 6e-7, 4096
"""of a sum of rows by index, for each that falls on the same row: they are added one after the other (64 to 65,536 rows
on 16 to 4,096 of 64 to 4,096 elements), and what a row of so many elements adds to it"""
NONZERO_S = 8e-6
"""of `nonzero` beyond one kernel: it counts, then adds up the counts, then writes"""
LOADED_BYTES = 16
"""that one instruction reads"""
SECTOR_BYTES = 32
"""that the memory gives at least"""
FEW_LINES = 10
"""of the cache, up to which the instructions of a copy take longer than they do"""
LIST_LAUNCH_S, LISTED = 1.5e-6, {1: 110, 2: 64, 3: 48, 4: 36}
"""of a further kernel for a list of tensors, and how many tensors one takes, by the number of lists (torch 2.11)"""
SCAN_STEP_S = 2.5e-7
"""of a running sum along an axis that is not the innermost: one thread goes along it"""
TOPK_ROW = 60
"""elements `topk` could have gone through while it begins a row"""
FEW_GROUPS, FEW_GROUPS_BLOCK = 528, 250
"""groups of all rows below which blocks of a group norm leave multiprocessors idle (one group each of 64 pictures)"""
PLANE, SMALL_PLANE = {"batch_norm": 200, "batch_norm_backward": 350}, 64
"""the same of a batch norm and the plane of a channel; planes up to so small have a kernel of their own"""
FEW_CHANNELS = {32: "_few", 64: "_some"}
"""up to so many, next to each other, leave lanes of torch's own batch norm idle"""
BATCH_NORM_S = 1.2e-5
"""of the kernels that a batch norm has besides the one over all elements"""
SORT_S = 2e-5
"""in which indices are sorted before what they point at is added up"""
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
    if name == "logsumexp" and ins:
        return _logsumexp(args, ins[0], outs)
    found: list[Named] = [(name, _one(func, name, args, ins, outs))]
    if name in SCATTERED and name.lstrip("_").startswith("index_put") and _accumulates(args):
        # what is added up is copied first unless it lies in order
        apart = next((t for t in ins[-1:] if t.is_floating_point() and not t.is_contiguous()), None)
        if apart is not None:
            into = torch.empty(apart.shape, dtype=apart.dtype, device="meta")
            found.insert(0, ("copy_", Pass(2 * _size(apart), *copied_way(apart, into))))
    return found


def _one(func: Any, name: str, args: Sequence[Any], ins: list[Tensor], outs: list[Tensor]) -> Pass:
    each = list({id(t): t for t in ins}.values())
    if name.startswith(FUSED):
        # the schema lets it write the gradients too
        kept = {id(t) for t in args[1]}
        outs = [t for t in outs if id(t) not in kept]
    moved = _moved(name, each, outs)
    if name in REDUCTIONS and ins:
        place = 2 if name == "linalg_vector_norm" else 1  # behind the order of the norm
        return reduced(args[place] if len(args) > place else None, ins[0], moved)
    kind, elements = _way(func, name, args, ins, outs)
    return Pass(bytes=moved, kind=kind, elements=elements, wait_s=_wait(name, kind, args, ins))


def _logsumexp(args: Sequence[Any], x: Tensor, outs: list[Tensor]) -> list[Named]:
    """Its largest, what lies below it, its power, and the sum: a kernel each."""
    axes, size = args[1] if len(args) > 1 else None, _size(x)
    summed = reduced(axes, x, size + sum(map(_size, outs)))
    return [
        ("amax", summed),
        ("sub", Pass(2 * size, "broadcast", x.numel())),
        ("exp_", Pass(2 * size)),
        ("sum", summed),
    ]


def _wait(name: str, kind: str, args: Sequence[Any], ins: list[Tensor]) -> float:
    """In which kernels wait for one another, or for themselves."""
    if name == "nonzero":
        return NONZERO_S
    if kind == "list":
        lists = sum(isinstance(arg, (list, tuple)) and bool(arg) and isinstance(arg[0], Tensor) for arg in args)
        return LIST_LAUNCH_S * (len(args[0]) // LISTED.get(lists, LISTED[4]))
    if kind == "sorted_sums":
        into, row = args[0], args[0].numel() // max(_places(args), 1)
        each = SAME_ROW_S + WIDE_ROW_S * min(row / WIDE_ROW, 1.0)
        return SORT_S + _same_rows(args) * each if into.numel() else 0.0
    if kind == "embedding_backward":
        return SORT_S
    if kind.startswith("batch_norm"):
        return BATCH_NORM_S
    if kind == "summed_down":
        return SCAN_STEP_S * float(ins[0].shape[args[1]])
    return 0.0


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
    if name == "gather":
        many, index = outs[0].numel(), ins[-1]
        return written + read_bytes(index) + min(_size(ins[0]), many * SECTOR_BYTES)
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
        return GROUP_NORMS[name], _few_groups(name, args)
    if name in ("cumsum", "cumprod") and ins[0].dim():
        return ("summed_up" if _in_rows(args) else "summed_down"), many
    if name == "topk":
        return "topk", ins[0].numel() + ins[0].numel() // max(ins[0].shape[-1], 1) * TOPK_ROW
    if name == "roll":
        return "rolled", many * max(len(args[2]) if len(args) > 2 else 1, 1)
    if name in BY_INPUT:
        return BY_INPUT[name], ins[0].numel()
    if name in BY_OUTPUT:
        return BY_OUTPUT[name], many
    if name in ROWS_LOOKED_UP:
        return "looked_up", many // max(out.shape[-1] if out.dim() else 1, 1) * LOOKED_UP_ROW
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
        if name.startswith("scatter") and _in_rows(args):
            return "placed_in_rows", source
        return ("sorted_sums" if _accumulates(args) else "scattered"), source
    if name in ("cat", "stack"):
        return _joined(args, ins, many)
    if name in COPIES and ins:
        return copied_way(ins[-1], out)
    if torch.Tag.pointwise in func.tags:
        return _pointwise(name, ins, out)
    return "stream", 0


def _few_groups(name: str, args: Sequence[Any]) -> int:
    """Elements the whole GPU could have gone through while one block goes through those of a group."""
    if name != "native_group_norm":
        return 0
    x, groups = args[0], int(args[6])
    blocks = x.shape[0] * groups
    return x.numel() // max(blocks, 1) * FEW_GROUPS_BLOCK if blocks < FEW_GROUPS else 0


def _joined(args: Sequence[Any], ins: list[Tensor], many: int) -> tuple[str, int]:
    """Sixteen bytes at a time only where each piece's rows come in sixteens."""
    if not all(t.is_contiguous() for t in ins):
        apart = max((t for t in ins if not t.is_contiguous()), key=Tensor.numel)
        return "joined_pieces", round(many * elements_found(apart, [apart]) / max(apart.numel(), 1))
    axis = args[1] if len(args) > 1 and isinstance(args[1], int) else 0
    even = all(prod(t.shape[axis % t.dim() :]) * t.element_size() % LOADED_BYTES == 0 for t in ins if t.dim())
    return ("joined", 0) if even else ("joined_unevenly", many)


def _in_rows(args: Sequence[Any]) -> bool:
    """Along the innermost axis, where what is picked lies close together."""
    x, axis = args[0], args[1] % max(args[0].dim(), 1)
    return all(size == 1 for size in x.shape[axis + 1 :])


def _places(args: Sequence[Any]) -> int:
    """That an `index_put` can point at."""
    return prod(size for size, index in zip(args[0].shape, args[1], strict=False) if index is not None)


def _same_rows(args: Sequence[Any]) -> int:
    """How many of the rows an `index_put` adds fall on each that there is."""
    rows: int = max((index.numel() for index in args[1] if index is not None), default=0)
    return rows // max(_places(args), 1)


def _accumulates(args: Sequence[Any]) -> bool:
    return any(arg is True for arg in args)


def _norm(name: str, ins: list[Tensor]) -> list[Named]:
    """Rows that do not lie one behind the other are copied first."""
    x = ins[0]
    width = x.shape[-1]
    rows, size = x.numel() // max(width, 1), _size(x)
    found: list[Named] = [
        ("copy_", Pass(2 * size, *copied_way(t, torch.empty(t.shape, dtype=t.dtype, device="meta"))))
        for t in ins
        if t.shape == x.shape and not t.is_contiguous()
    ]
    if name in NORMS:
        return [*found, (name, Pass(2 * size, "norm", x.numel() + rows * ROW_START[max(x.element_size(), 2)], NORM_S))]
    kind = "norm_backward" if width <= REGISTER_ROW else "long_norm_backward"
    found.append((name, Pass(3 * size, kind, rows * GRADIENT_ROW_START)))
    if any(t.dim() == 1 and t.shape[0] == width for t in ins):
        found.append((name, Pass(2 * size, "norm_weights", rows * WEIGHT_ROW if rows <= ENOUGH_ROWS else 0)))
    return found


def _batch_norm(kind: str, out: Tensor) -> tuple[str, int]:
    """cuDNN's, or torch's own in bf16: one block for a channel, plane by plane, unless channels lie next to each
    other."""
    name = kind if out.dtype is torch.bfloat16 else "cudnn_" + kind
    channels = max(out.shape[1], 1) if out.dim() > 1 else 1
    if out.dim() < 2 or out.stride()[1] == 1:
        if name == kind and out.dim() > 2:
            name += next((end for most, end in FEW_CHANNELS.items() if channels <= most), "")
        return name, 0
    plane = PLANE[kind] if prod(out.shape[2:]) > SMALL_PLANE else PLANE["batch_norm"] // 4
    return name, max(out.numel() // channels * ONE_BLOCK[name], out.shape[0] * channels * plane)


def _softmax(name: str, out: Tensor) -> tuple[str, int]:
    row = out.shape[-1] if out.shape else 1
    if row > ON_CHIP_ROW:
        return ("softmax" if name == "_softmax" else "log_softmax"), out.numel()
    padded = out.numel() // max(row, 1) * 2 ** max(row - 1, 0).bit_length()
    return "short_softmax", round(padded * (NARROW_SOFTMAX_TIME if row <= NARROW_SOFTMAX else 1.0))


def copied_way(source: Tensor, out: Tensor) -> tuple[str, int]:
    if source.numel() <= 1 or out.numel() <= 1:
        return "stream", 0
    wider = out.element_size() > source.element_size()
    if same_layout(source, out):
        return ("widened", out.numel()) if wider else ("stream", 0)
    lines = lines_touched(source, out)
    if lines > FEW_LINES:
        return "turned", out.numel() * lines // WARP
    return ("widened" if wider else "strided"), elements_found(out, [source])


def _pointwise(name: str, ins: list[Tensor], out: Tensor) -> tuple[str, int]:
    # a number that lies on the GPU is broadcast like any other tensor, one of the host is not
    operands = [t for t in ins if t.dim() or not (name == "where" or all_on_host([t]))]
    floats = {t.dtype for t in (*operands, out) if t.is_floating_point()}
    if all(same_layout(t, out) for t in operands):
        if len(floats) > 1:
            return "mixed", out.numel()
        if name == "where":
            return "chosen", 0
        return (CURVED.get(name, "stream") if out.element_size() == 2 else "stream"), 0
    elements = elements_found(out, operands)
    if len(floats) > 1:
        whole = [t for t in operands if t.shape == out.shape]
        if len(whole) == len(operands):
            return "mixed", elements
        wider = any(t.element_size() < out.element_size() for t in whole)
        return ("widened_broadcast" if wider else "mixed_broadcast"), elements
    lines = max((lines_touched(t, out) for t in operands if t.shape == out.shape), default=1)
    if lines > FEW_LINES:
        return "turned", elements * lines // WARP
    if len(operands) == 1:
        return "strided", elements
    broadcast = all(same_layout(t, out) or (t.is_contiguous() and t.shape != out.shape) for t in operands)
    return ("broadcast" if broadcast else "mixed"), elements
