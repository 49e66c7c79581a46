"""Seeded changes to one place of a source file: the mutants of `benchmarks/mutants.py`."""

import ast
import copy
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import CodeType

SWAPPED: dict[type[ast.AST], type[ast.AST]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult,
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.And: ast.Or, ast.Or: ast.And,
}  # fmt: skip
CALLS = {"min": "max", "max": "min", "minimum": "maximum", "maximum": "minimum", "ceil": "floor", "floor": "ceil"}
UNIT = 1000
"""a number as large as this is a unit or a size: its mutant is a thousandth of it, as where a unit is forgotten"""


@dataclass(frozen=True)
class Mutant:
    file: Path
    line: int
    function: str
    """qualified name of the outermost function; empty: a constant of the module"""
    first_line: int
    """of that function as its code object counts, decorators included"""
    kind: str
    """number, operator, bound, dropped term, sign or swapped call"""
    change: str
    tree: ast.Module


@dataclass(frozen=True)
class _Place:
    function: str
    first_line: int
    node: ast.expr


def mutants_of(files: list[Path], count: int, seed: int) -> list[Mutant]:
    """`count` mutants, files and places drawn by the seed; at most one for each place, spread over the files by the
    number of places in them."""
    drawn = random.Random(seed)
    trees = {file: ast.parse(file.read_text(encoding="utf-8")) for file in files}
    places = [(file, place) for file, tree in trees.items() for place in _places(tree)]
    chosen: list[Mutant] = []
    for file, place in drawn.sample(places, len(places)):
        if len(chosen) == count:
            break
        mutant = _mutated(file, trees[file], place, drawn)
        if mutant is not None:
            chosen.append(mutant)
    return chosen


def code_of(mutant: Mutant) -> CodeType | None:
    """The code of the mutated function; None for a constant of the module."""
    return next(
        (code for code in _codes(compile(mutant.tree, str(mutant.file), "exec"))
         if (code.co_qualname, code.co_firstlineno) == (mutant.function, mutant.first_line)), None
    )  # fmt: skip


def constant_of(mutant: Mutant) -> tuple[str, float] | None:
    """Name and new value of a constant of the module."""
    for node in mutant.tree.body:
        if node.lineno <= mutant.line <= (node.end_lineno or node.lineno) and isinstance(node, ast.Assign):
            target = node.targets[0]
            if isinstance(target, ast.Name) and isinstance(node.value, ast.Constant):
                assert isinstance(node.value.value, int | float)
                return target.id, node.value.value
    return None


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield from _codes(each)


def _places(tree: ast.Module) -> Iterator[_Place]:
    """Expressions that compute: of functions, and single numbers that a module names."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and _is_number(node.value):
            yield _Place("", 0, node.value)
    yield from _of_functions(tree.body, "")


def _of_functions(body: list[ast.stmt], prefix: str) -> Iterator[_Place]:
    for node in body:
        if isinstance(node, ast.ClassDef):
            yield from _of_functions(node.body, f"{prefix}{node.name}.")
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
            for each in (inner for statement in node.body for inner in ast.walk(statement)):
                if isinstance(each, ast.BinOp | ast.Compare | ast.BoolOp | ast.UnaryOp | ast.Call) or (
                    isinstance(each, ast.Constant) and _is_number(each)
                ):
                    yield _Place(f"{prefix}{node.name}", first, each)


def _is_number(node: ast.Constant) -> bool:
    return isinstance(node.value, int | float) and not isinstance(node.value, bool)


def _mutated(file: Path, tree: ast.Module, place: _Place, drawn: random.Random) -> Mutant | None:
    path = _path_to(tree, place.node)
    changed = copy.deepcopy(tree)
    node = _at(changed, path)
    before = ast.unparse(node)
    mutation = _mutation(node, drawn)
    if mutation is None:
        return None
    kind, replacement = mutation
    ast.copy_location(replacement, node)
    _put(changed, path, replacement)
    ast.fix_missing_locations(changed)
    change = f"{before}  ->  {ast.unparse(replacement)}"
    return Mutant(file, place.node.lineno, place.function, place.first_line, kind, change, changed)


def _mutation(node: ast.AST, drawn: random.Random) -> tuple[str, ast.expr] | None:
    node = copy.deepcopy(node)
    match node:
        case ast.Constant(value=int() | float() as value):
            return "number", ast.Constant(_other(value, drawn))
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub()) if drawn.random() < 0.5 and not _is_text(node):
            return "dropped term", left
        case ast.BinOp(op=op) if type(op) in SWAPPED and not _is_text(node):
            node.op = SWAPPED[type(op)]()  # type: ignore[assignment]
            return "operator", node
        case ast.Compare(ops=[op]) if type(op) in SWAPPED:
            node.ops = [SWAPPED[type(op)]()]  # type: ignore[list-item]
            return "bound", node
        case ast.BoolOp(op=op):
            node.op = SWAPPED[type(op)]()  # type: ignore[assignment]
            return "bound", node
        case ast.UnaryOp(op=ast.USub() | ast.Not(), operand=operand):
            return "sign", operand
        case ast.Call(func=ast.Name(id=name) as called) if name in CALLS:
            called.id = CALLS[name]
            return ("swapped call", node) if name in ("min", "max") else None
        case ast.Call(func=ast.Attribute(attr=name) as called) if name in CALLS:
            called.attr = CALLS[name]
            return "swapped call", node
    return None


def _other(value: float, drawn: random.Random) -> float:
    """Half, twice, one more, or a thousandth: never the same number; a whole number stays whole."""
    if value == 0:
        return 1
    choices: list[float] = [value * 2, value + 1]
    choices.append(value / 2 if isinstance(value, float) else value - 1)
    if abs(value) >= UNIT:
        choices.append(type(value)(value / UNIT))
    return drawn.choice([each for each in choices if each != value])


def _is_text(node: ast.BinOp) -> bool:
    """Whether words or lists are put together here, or a text is filled in."""
    return any(
        isinstance(each, ast.JoinedStr | ast.List | ast.Tuple | ast.Dict | ast.ListComp)
        or (isinstance(each, ast.Constant) and isinstance(each.value, str))
        for each in (node.left, node.right)
    )


Path_ = list[tuple[str, int | None]]


def _path_to(tree: ast.AST, wanted: ast.AST) -> Path_:
    """Fields and indices that lead from the tree to the node."""
    for name, value in ast.iter_fields(tree):
        for index, child in enumerate(value) if isinstance(value, list) else [(None, value)]:
            if child is wanted:
                return [(name, index)]
            if isinstance(child, ast.AST):
                below = _path_to(child, wanted)
                if below:
                    return [(name, index), *below]
    return []


def _at(tree: ast.AST, path: Path_) -> ast.AST:
    for name, index in path:
        value = getattr(tree, name)
        tree = value if index is None else value[index]
    return tree


def _put(tree: ast.AST, path: Path_, node: ast.AST) -> None:
    parent, (name, index) = _at(tree, path[:-1]), path[-1]
    if index is None:
        setattr(parent, name, node)
    else:
        getattr(parent, name)[index] = node
