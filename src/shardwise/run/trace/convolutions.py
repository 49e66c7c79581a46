"""The kernels a convolution is on CUDA: the product itself or its two gradients, copies into the layout that matrix
units read where the tensors have another one, and the bias."""

from collections.abc import Sequence
from math import prod
from typing import Any

import torch
from torch import Tensor

from shardwise.run.trace.dtypes import dtype_name
from shardwise.run.trace.events import Convolution, Pass
from shardwise.run.trace.passes import copied_way
from shardwise.run.trace.reductions import reduced

Named = tuple[str, Convolution | Pass]
FEW_CHANNELS = 8
"""below, cuDNN has no good kernel: the first layer of whatever reads pictures or sound"""
WHOLE_CHANNELS = 8
"""in 16 bits: others are copied to where channels come in multiples of this"""
PLANE = 8
"""a filter of one place is a product of the tensors as they lie if places come in multiples of this"""


def forward(args: Sequence[Any], out: Tensor) -> list[Named]:
    x, weight, bias, stride, transposed, groups = args[0], args[1], args[2], args[3], bool(args[6]), int(args[8])
    found: list[Named] = [
        *_in_order(x, like=_telling(x, weight)),
        ("convolution", _kernel("forward", x, weight, out, stride, transposed, groups)),
    ]
    if isinstance(bias, Tensor):
        found.append(("add_", Pass(bytes=2 * _size(out), kind="broadcast", elements=out.numel())))
    return found


def backward(args: Sequence[Any]) -> list[Named]:
    """A kernel for each gradient that is asked for."""
    gradient, x, weight, stride, transposed, groups = args[0], args[1], args[2], args[4], bool(args[7]), int(args[9])
    wanted = args[-1]
    like = _telling(x, weight)
    found: list[Named] = [
        *_in_order(gradient, like=x if like is None else like),
        *(_in_order(x, like=like) if wanted[1] else ()),
    ]
    found += [
        ("convolution_backward", _kernel(part, x, weight, gradient, stride, transposed, groups))
        for part, asked in zip(("input", "weight"), wanted[:2], strict=True)
        if asked
    ]
    if wanted[2]:
        found.append(("sum", reduced([axis for axis in range(gradient.dim()) if axis != 1], gradient, _size(gradient))))
    return found


def _telling(x: Tensor, weight: Tensor) -> Tensor | None:
    """The weight, where its layout and not the input's decides that of the kernel."""
    return weight if _weights_last(weight) and not _is_last(x) else None


def _in_order(tensor: Tensor, like: Tensor | None = None) -> list[Named]:
    """Other layouts than the two that kernels know are copied first, as sounds are whose norms go over channels; a
    gradient that has another one than its input, into the input's."""
    last = _is_last(tensor if like is None else like)
    if (_channels_last(tensor) if last else tensor.is_contiguous()) or (like is None and tensor.is_contiguous()):
        return []
    into = torch.empty(tensor.shape, dtype=tensor.dtype, device="meta")
    if last and tensor.dim() == 4:
        into = into.to(memory_format=torch.channels_last)
    return [("copy_", Pass(2 * _size(tensor), *copied_way(tensor, into)))]


def _kernel(
    part: str, x: Tensor, weight: Tensor, out: Tensor, stride: Sequence[int], transposed: bool, groups: int
) -> Convolution:
    small, large = (x, out) if transposed else (out, x)
    places, reached = (t.numel() // t.shape[1] for t in (small, large))
    last = _is_last(x) or _weights_last(weight) or (part == "forward" and _is_last(out))
    taps, plane = prod(weight.shape[2:]), prod(x.shape[2:])
    as_product = taps == 1 and set(stride) == {1} and plane % PLANE == 0
    kind = "dense"
    if groups > 1:
        kind = "depthwise" if weight.shape[1] == 1 else "grouped"
    elif x.shape[1] < FEW_CHANNELS:
        kind = "few_channels"
    odd = last and x.element_size() == 2 and any(many % WHOLE_CHANNELS for many in weight.shape[:2])
    turned = kind in ("dense", "grouped") and (odd or not last) and not as_product
    return Convolution(
        part=part, kind=kind, places=places, reached=reached, taps=taps, channels=weight.shape[1] * groups,
        filters=weight.shape[0], groups=groups, dtype=dtype_name(x.dtype), last=last,
        bytes=_size(x) + _size(weight) + _size(out), turned_bytes=2 * (_size(x) + _size(out)) if turned else 0,
        turned_weight_bytes=2 * _size(weight) if turned else 0,
    )  # fmt: skip


def _channels_last(tensor: Tensor) -> bool:
    forms = {4: torch.channels_last, 5: torch.channels_last_3d}
    form = forms.get(tensor.dim())
    return form is not None and tensor.shape[1] > 1 and tensor.is_contiguous(memory_format=form)


def _is_last(tensor: Tensor) -> bool:
    return _channels_last(tensor) or _like_last(tensor)


def _weights_last(weight: Tensor) -> bool:
    """cuDNN is asked for the layout of the input, or of the weights if their strides tell of one: those of a filter of
    one place do where somebody has converted them (c10/core/MemoryFormat.h, is_channels_last_strides_2d)."""
    if prod(weight.shape[2:]) > 1:
        return _channels_last(weight)
    if weight.dim() != 4 or weight.shape[1] < 2:
        return False
    filters, channels, height, width = weight.stride()
    return channels == 1 and filters >= height >= width >= weight.shape[1]


def _like_last(tensor: Tensor) -> bool:
    """A part of the channels of such a tensor: cuDNN is given a copy in the same layout."""
    if tensor.dim() != 4 or tensor.shape[1] < 2:
        return False
    rows, channels, height, width = tensor.stride()
    _, many, high, wide = tensor.shape
    return channels == 1 and width >= many and height >= width * wide and rows >= height * high


def _size(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()
