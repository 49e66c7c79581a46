"""What every fitted setting is, where it lies, and what it does to the error."""

import ast
import inspect
from functools import cache

import numpy as np

from _accuracy_bounds import bound_of
from _accuracy_data import Rows, memory_errors, time_errors
from _accuracy_fit import default_of
from _accuracy_folds import Record
from _accuracy_tables import markdown, percent
from shardwise.software import parts

DEAF = 0.0005
"""a change of the mean error below this is none"""


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


def settings_table(rows: Rows, record: Record | None) -> str:
    """Value, spread over folds, meaning, and the mean error with this setting alone put back to its default."""
    stack, lines = rows.stack, []
    for name in stack.fitted:
        memory = bound_of(name).memory
        part = rows.with_memory() if memory else rows
        if not part.cases:
            continue
        before = mean_error(part, {}, memory)
        after = mean_error(part, {name: default_of(name)}, memory)
        folds = [fold["settings"][name] for fold in record["folds"] if name in fold["settings"]] if record else []
        between = f"{min(folds):.3g} .. {max(folds):.3g}" if folds else "-"
        change = "no change" if abs(after - before) < DEAF else f"{percent(before)} → {percent(after)}"
        lines.append([f"`{name}`", meanings()[name], f"{stack.setting(name):.3g}", between, f"{default_of(name):.3g}",
                      ("memory " if memory else "") + change])  # fmt: skip
    head = ("setting", "what it is", "value", "over folds", "default", "mean error when put back to the default")
    return markdown(head, lines, left=2)
