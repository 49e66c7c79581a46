"""Sums and their like, by where what is added up lies: in rows, down columns, or in several axes with others between.

Fitted on the sums of `evidence/timed/trace-grid-h200.csv`, `trace-operators-h200.csv` and `trace-stream-h200.csv` (one
H200, torch 2.11).
"""

from collections.abc import Sequence
from math import prod
from typing import Any

from torch import Tensor

from shardwise.run.trace.events import Pass

LANES = 32
"""threads that add up one row together"""
WAIT_A_ROW_S, WAIT_FOR_COLUMNS_S, LONGEST_WAIT_S = 9.5e-10, 2.1e-2, 8.5e-5
"""blocks of the kernel add up each other's sums of columns: for each row (of 128 columns or more; fewer columns,
quadratically less), at most so much by the number of columns, and at most so much"""
FEW_COLUMNS = 128
CUT_ROWS, CUT_S = 512, 6e-6
"""columns of so many rows are cut, and counters of the blocks that are done are cleared before: a kernel of its own"""
SEVERAL_AXES_S = 5.7e-6
"""the same where axes that are kept lie between those that are added up"""


def reduced(axes: Any, x: Tensor, moved: int) -> Pass:
    """`axes`: those that are added up; `moved`: bytes read and written."""
    narrow = x.element_size() == 2
    runs = _runs(axes, x)
    added = [size for size, summed in runs if summed]
    kept = prod(size for size, summed in runs if not summed)
    if not runs or not added or kept == 1:
        return Pass(bytes=moved, kind="reduced")
    if len(added) > 1 and runs[0][1]:
        return Pass(bytes=moved, kind="reduced_planes", elements=x.numel(), wait_s=SEVERAL_AXES_S)
    if runs[0][1]:
        rows = x.numel() // added[0]
        return Pass(bytes=moved, kind="reduced_narrow" if narrow else "reduced", elements=rows * min(added[0], LANES))
    return column_sum(moved, prod(added), kept)


def column_sum(moved: int, rows: int, columns: int) -> Pass:
    slope = WAIT_A_ROW_S * min(columns / FEW_COLUMNS, 1.0) ** 2
    wait = min(rows * slope, WAIT_FOR_COLUMNS_S / max(columns, 1), LONGEST_WAIT_S) + (
        CUT_S if rows >= CUT_ROWS else 0.0
    )
    return Pass(bytes=moved, kind="reduced_columns", wait_s=wait)


def _runs(axes: Any, x: Tensor) -> list[tuple[int, bool]]:
    """(elements, are they added up?) from the innermost axis outwards; neighbours of one kind are one."""
    given: Sequence[int] = [axes] if isinstance(axes, int) else axes if isinstance(axes, (list, tuple)) else ()
    summed = {axis % x.dim() for axis in given} or set(range(x.dim()))
    found: list[tuple[int, bool]] = []
    for axis in sorted((a for a in range(x.dim()) if x.shape[a] > 1), key=lambda a: x.stride()[a]):
        if found and found[-1][1] == (axis in summed):
            found[-1] = (found[-1][0] * x.shape[axis], found[-1][1])
        else:
            found.append((x.shape[axis], axis in summed))
    return found
