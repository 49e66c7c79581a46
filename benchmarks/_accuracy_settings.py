"""What every fitted setting is, where it lies, and what it does to the error."""

import ast
import inspect
from functools import cache

import numpy as np

from _accuracy_bounds import bound_of
from _accuracy_csv import Cell, Table
from _accuracy_data import Rows, memory_errors, time_errors
from _accuracy_fit import default_of
from _accuracy_folds import Record
from shardwise.spec.software import parts


@cache
def meanings() -> dict[str, str]:
    """The documentation under each setting of a stack; where there is none, the name in words."""
    found = {}
    for struct in (node for node in ast.parse(inspect.getsource(parts)).body if isinstance(node, ast.ClassDef)):
        for field, after in zip(struct.body, [*struct.body[1:], None], strict=True):
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                stated = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
                text = str(after.value.value) if stated else field.target.id.replace("_", " ")  # type: ignore[union-attr]
                found[field.target.id] = " ".join(text.split())
    return found


def mean_error(rows: Rows, settings: dict[str, float], memory: bool) -> float:
    found = rows.predict(settings)
    return float(np.abs(memory_errors(found) if memory else time_errors(found)).mean())


def settings_table(every: list[Rows], records: dict[str, Record]) -> Table:
    """Value, spread over folds, meaning, and the mean error with this setting alone put back to its default."""
    lines = [line for rows in every for line in _lines(rows, records.get(rows.stack.name))]
    head = ("stack", "setting", "meaning", "value", "lowest_of_folds", "highest_of_folds", "default", "error_of",
            "mean_error", "mean_error_at_default")  # fmt: skip
    about = (
        "every fitted setting: its value, its spread over the folds (a wide one means the rows cannot tell), and the "
        "mean error when it alone goes back to the default, nothing refitted"
    )
    return Table("settings", about, head, lines)


def _lines(rows: Rows, record: Record | None) -> list[list[Cell]]:
    stack, lines = rows.stack, []
    for name in stack.fitted:
        memory = bound_of(name).memory
        part = rows.with_memory() if memory else rows
        if not part.cases:
            continue
        before = mean_error(part, {}, memory)
        after = mean_error(part, {name: default_of(name)}, memory)
        folds = [fold["settings"][name] for fold in record["folds"] if name in fold["settings"]] if record else []
        between = (min(folds), max(folds)) if folds else (None, None)
        lines.append([stack.name, name, meanings()[name], stack.setting(name), *between, default_of(name),
                      "memory" if memory else "step", before, after])  # fmt: skip
    return lines
