"""What is outside the blocks of a model that reads no words: patches of pictures, positions, conditions, an output."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from shardwise.run.auto.seen_blocks import BlockSeen
from shardwise.spec.model import Matrix

CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)


class NotRecognised(ValueError):
    """Why no Model of the planner says what a module does."""


@dataclass(frozen=True)
class RowsSeen:
    """Of a product outside the blocks, when it was last called."""

    rows: int
    """that it made: of a convolution, places of its output"""
    of_data: bool
    """nothing before it is trained"""


@contextmanager
def rows_seen(outside: Mapping[str, nn.Module]) -> Iterator[dict[str, RowsSeen]]:
    """Of every product outside the blocks that runs inside."""
    found: dict[str, RowsSeen] = {}

    def watched(name: str, channels: int) -> Any:
        def hook(_: nn.Module, given: tuple[Any, ...], output: Any) -> None:
            rows = output.numel() // max(channels, 1) if isinstance(output, Tensor) else 0
            found[name] = RowsSeen(rows, not any(isinstance(x, Tensor) and x.requires_grad for x in given))

        return hook

    hooks = []
    for name, module in outside.items():
        if isinstance(module, nn.Linear | nn.Conv1d | nn.Conv2d | nn.Conv3d):
            hooks.append(module.register_forward_hook(watched(name, module.weight.shape[0])))
    try:
        yield found
    finally:
        for hook in hooks:
            hook.remove()


@dataclass(frozen=True)
class _Sight:
    """The blocks' tokens, and the rows of products outside them."""

    hidden: int
    tokens: int
    samples: int
    seen: Mapping[str, RowsSeen]

    def rows(self, name: str) -> int:
        return self.seen[name].rows if name in self.seen else 0

    def of_tokens(self, name: str) -> bool:
        """It takes most of the tokens of a sample: those for classes may be added behind it."""
        return 2 * self.rows(name) > self.tokens * self.samples

    def reads_patches(self, name: str) -> bool:
        return self.of_tokens(name) and self.seen[name].of_data

    def once(self, name: str) -> bool:
        return 0 < self.rows(name) <= self.samples < self.tokens * self.samples


def picture_ends(
    outside: Mapping[str, nn.Module], hidden: int, block: BlockSeen, seen: Mapping[str, RowsSeen]
) -> dict[str, Any]:
    """The last linear module that reads the blocks' width is the output, of every token or one row of a sample. The
    first product that makes every token's vector of data reads the patches; learned tokens and a table of as many rows
    as there are tokens belong to them. The rest leads into the first layer: further products of every token, and what
    is computed once a sample (times, classes), held and next to nothing to compute.
    """
    heads = [name for name, m in outside.items() if type(m) is nn.Linear and m.in_features == hidden]
    if not heads:
        raise NotRecognised("no GEMM outside the blocks takes their output")
    head: Any = outside[heads[-1]]
    tokens = block.tokens or 1
    sight = _Sight(hidden, tokens, max(block.rows // tokens, 1), seen)
    norms = [name for name, m in outside.items() if wide_norm(m, hidden)]
    found, known = _patches(outside, sight, heads[-1])
    return {
        "vocab": head.out_features, "head_bias": head.bias is not None, "rotary": False,
        "final_norm": bool(norms), "embedding_norm": len(norms) > 1, "head_once": sight.once(heads[-1]),
        **(found or {"tied": True}), "before": tuple(_all(outside, {heads[-1], *norms}, known, sight)),
    }  # fmt: skip


def _patches(outside: Mapping[str, nn.Module], sight: _Sight, head: str) -> tuple[dict[str, Any], set[int]]:
    """What a Model says of patches, and the parameters that are told by it; nothing where no product makes tokens."""
    first: Any = next(
        (
            (name, m)
            for name, m in outside.items()
            if isinstance(m, (nn.Linear, *CONVOLUTIONS))
            and (name != head and m.weight.shape[0] == sight.hidden and sight.reads_patches(name))
        ),
        None,
    )
    if first is None:
        return {}, set()
    name, product = first
    told = {id(p) for p in product.parameters(recurse=False)}
    tables = [p for m in outside.values() for p in m.parameters(recurse=False) if _is_table(p, sight.hidden)]
    patches = sight.rows(name) // sight.samples
    places = next((p for p in tables if p.shape[1] in (sight.tokens, patches) and p.shape[1] > 1), None)
    learned, missing = [], sight.tokens - patches
    for table in (p for p in tables if p is not places):
        if table.shape[1] <= missing:
            learned.append(table)
            missing -= table.shape[1]
    if missing:  # tokens that come from elsewhere
        learned = []
    told |= {id(p) for p in (*learned, *([places] if places is not None else []))}
    return {
        "inputs": "patches", "tied": False, "input_width": product.weight[0].numel(),
        "input_bias": product.bias is not None, "positions": 0 if places is None else places.shape[1],
        "class_tokens": sum(table.shape[1] for table in learned),
        "sample_tokens": 0 if places is None else sight.tokens,
    }, told  # fmt: skip


def _is_table(parameter: Tensor, hidden: int) -> bool:
    """Vectors that are put before the tokens of every sample or added to them: 1 x places x width."""
    return parameter.dim() == 3 and parameter.shape[0] == 1 and parameter.shape[2] == hidden


def _all(
    outside: Mapping[str, nn.Module], known: set[str], told: set[int], sight: _Sight
) -> Iterator[Matrix]:  # fmt: skip
    counted = set(told)
    for name, module in outside.items():
        held = [] if name in known else list(module.named_parameters(recurse=False))
        bias: Any = dict(held).get("bias")
        for own, parameter in held:
            if id(parameter) in counted or (own == "bias" and len(held) > 1):
                continue
            counted.add(id(parameter))
            rows, columns = _sizes(parameter)
            product = own == "weight" and sight.of_tokens(name)
            with_bias = bias is not None and own == "weight" and bias.numel() == rows
            yield Matrix(name=f"{name}.{own}".strip("."), outputs=rows, inputs=columns, bias=with_bias, product=product)


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
