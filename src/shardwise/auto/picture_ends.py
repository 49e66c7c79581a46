"""What is outside the blocks of a model that reads no words: patches of pictures, positions, conditions, an output."""

from collections.abc import Iterator, Mapping
from typing import Any

from torch import Tensor, nn

from shardwise.spec.model import Matrix


class NotRecognised(ValueError):
    """Why no Model of the planner says what a module does."""


def picture_ends(outside: Mapping[str, nn.Module], hidden: int) -> dict[str, Any]:
    """The last linear module that reads the blocks' width is the output; the rest leads into the first layer.

    Convolutions over patches are products of every token; tables, single tokens and what is computed once a sample
    (times, classes) are held and next to nothing to compute.
    """
    heads = [name for name, m in outside.items() if type(m) is nn.Linear and m.in_features == hidden]
    if not heads:
        raise NotRecognised("no product outside the blocks takes what they make")
    head: Any = outside[heads[-1]]
    norms = [name for name, m in outside.items() if wide_norm(m, hidden)]
    before = tuple(_all(outside, {heads[-1], *norms}, hidden))
    return {
        "vocab": head.out_features, "tied": True, "head_bias": head.bias is not None, "rotary": False,
        "final_norm": bool(norms), "embedding_norm": len(norms) > 1, "before": before,
    }  # fmt: skip


def _all(outside: Mapping[str, nn.Module], known: set[str], hidden: int) -> Iterator[Matrix]:
    counted: set[int] = set()
    for name, module in outside.items():
        held = [] if name in known else list(module.named_parameters(recurse=False))
        bias: Any = dict(held).get("bias")
        for own, parameter in held:
            if id(parameter) in counted or (own == "bias" and len(held) > 1):
                continue
            counted.add(id(parameter))
            rows, columns = _sizes(parameter)
            patches = isinstance(module, nn.Conv1d | nn.Conv2d | nn.Conv3d) and rows == hidden
            with_bias = bias is not None and own == "weight" and bias.numel() == rows
            yield Matrix(name=f"{name}.{own}".strip("."), outputs=rows, inputs=columns, bias=with_bias, product=patches)


def _sizes(parameter: Tensor) -> tuple[int, int]:
    """A matrix as large: rows of its first axis that has more than one, or of all but the last."""
    shape = list(parameter.shape)
    while len(shape) > 2 and shape[0] == 1:
        shape = shape[1:]
    rows = shape[0] if shape else 1
    return rows, max(parameter.numel() // max(rows, 1), 1)


def wide_norm(module: nn.Module, hidden: int) -> bool:
    own = list(module.parameters(recurse=False))
    plain = not isinstance(module, nn.Linear | nn.Embedding) and not list(module.children())
    return plain and bool(own) and all(p.shape == (hidden,) for p in own)
