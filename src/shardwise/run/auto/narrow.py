"""A user's code with smaller numbers: what its model does at widths that this machine can train."""

import ast
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import nn

from shardwise.run.auto.blocks import block_kinds
from shardwise.run.auto.proof import NARROWED_FROM
from shardwise.run.trace.script import Script

MULTIPLE = 16
"""of which smaller numbers are, so that ranks share them evenly"""
DIVISORS = (16, 64, 4)
"""as they are tried"""


def smaller(number: int, divisor: int) -> int:
    if number < NARROWED_FROM:
        return number
    return max(MULTIPLE, round(number / divisor / MULTIPLE) * MULTIPLE)


def smaller_numbers(value: Any, divisor: int) -> Any:
    """Of what a JSON file holds."""
    if isinstance(value, dict):
        return {name: smaller_numbers(each, divisor) for name, each in value.items()}
    if isinstance(value, list):
        return [smaller_numbers(each, divisor) for each in value]
    return smaller(value, divisor) if isinstance(value, int) and not isinstance(value, bool) else value


class _Renumbered(ast.NodeTransformer):
    def __init__(self, change: Callable[[int], int]) -> None:
        self.change = change

    def visit_Constant(self, node: ast.Constant) -> ast.Constant:
        number = isinstance(node.value, int) and not isinstance(node.value, bool)
        return ast.copy_location(ast.Constant(self.change(node.value)), node) if number else node  # type: ignore[arg-type]


@contextmanager
def renumbered(script: Script, change: Callable[[int], int]) -> Iterator[Script]:
    """The same file with other whole numbers, as long as this is open."""
    tree = _Renumbered(change).visit(ast.parse(script.path.read_bytes()))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / script.path.name
        path.write_text(ast.unparse(ast.fix_missing_locations(tree)))
        yield replace(script, path=path)


def same_form(narrow: nn.Module, whole: nn.Module) -> bool:
    """The same blocks as often, with weights of the same names and numbers of axes."""
    return _form(narrow) == _form(whole)


def same_shapes(one: nn.Module, other: nn.Module) -> bool:
    return [(n, p.shape) for n, p in one.named_parameters()] == [(n, p.shape) for n, p in other.named_parameters()]


def _form(model: nn.Module) -> list[Any]:
    return [(kind.class_name, kind.names, [(n, p.dim()) for n, p in kind.first.named_parameters()])
            for kind in block_kinds(model)]  # fmt: skip
