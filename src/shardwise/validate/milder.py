"""A run that was measured had room for what it kept. Where the usual reading of a row would not fit, what its cells
leave open is read again: ZeRO, how the model is cut, and whether an unknown program fuses its kernels. Nothing that a
row states is read otherwise, so one that states everything stays as it is."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

from shardwise.software import named
from shardwise.validate.interpret import MeasuredCase, UnsupportedRow, measured_case
from shardwise.validate.table import MeasuredRow

WOULD_NOT_FIT = "as usually read it would not fit"
_FUSED = {"fused_norm": True, "fuses_rotation": True, "fused_glu": True}


def milder_cases(case: MeasuredCase, stack_name: str) -> Iterator[MeasuredCase]:
    """Readings of its row that may need less memory, the nearest to the usual one first."""
    openly = _open_cells(case, stack_name)
    if openly is not None:
        yield openly
    if not named(case.stack).known:
        last = openly or case
        note = f"{WOULD_NOT_FIT}: norms, rotation and gated activation taken as fused"
        yield replace(last, stack=last.stack.changed(**_FUSED), assumed=(*last.assumed, note))


def _open_cells(case: MeasuredCase, stack_name: str) -> MeasuredCase | None:
    """Every choice for the empty cells, of which the best that fits is taken."""
    row, stack = case.measured, case.stack
    choices: dict[str, list[str]] = {}
    if not row.word("zero_stage_or_fsdp"):
        choices["zero_stage_or_fsdp"] = [str(stage) for stage in stack.abilities.zero]
    if not row.word("tp") and not row.word("pp") and not row.word("dp"):
        choices["tp"] = [str(tp) for tp in (1, 2, 4, 8) if tp <= case.cluster.node_size]
    if not choices:
        return None
    readings = [_filled(row, choices, values, stack_name) for values in product(*choices.values())]
    candidates = tuple(policy for reading in readings if reading for policy in reading.candidates)
    said = ", ".join(f"{column.partition('_')[0]} of {'/'.join(values)}" for column, values in choices.items())
    assumed = (*case.assumed, f"{WOULD_NOT_FIT}: not published, best that fits: {said}")
    return replace(case, candidates=candidates, assumed=assumed) if candidates else None


def _filled(
    row: MeasuredRow, columns: dict[str, list[str]], values: tuple[str, ...], stack_name: str
) -> MeasuredCase | None:
    try:
        text = {**row.text, **dict(zip(columns, values, strict=True))}
        return measured_case(MeasuredRow(row=row.row, text=text), stack_name)
    except UnsupportedRow:
        return None
