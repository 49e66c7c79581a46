"""A run that was measured had room for what it kept. Where the usual reading of a row would not fit, what its cells
leave open is read again: ZeRO, how the model is cut, and of a program that nobody knows whether it fuses its kernels
and keeps weights in 16 bits alone. Nothing that a row states is read otherwise, so one that states everything, of a
known program, stays as it is."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import msgspec

from shardwise.measured.validate.interpret import MeasuredCase, UnsupportedRow, measured_case
from shardwise.measured.validate.table import MeasuredRow
from shardwise.spec.job import precision_of
from shardwise.spec.software import named

WOULD_NOT_FIT = "as usually read it would not fit"
WOULD_RECOMPUTE = "as usually read it would recompute every layer to fit"
SIXTEEN_BITS = "bf16-pure"
_FUSED = {"fused_norm": True, "fuses_rotation": True, "fused_glu": True}


def milder_cases(case: MeasuredCase, stack_name: str) -> Iterator[MeasuredCase]:
    """Readings of its row that may need less memory, the nearest to the usual one first."""
    openly = _open_cells(case, stack_name)
    if openly is not None:
        yield openly
    # one that is known by a library it is built on has settings of its own
    if named(case.stack).known and not case.stack.library:
        return
    last = openly or case
    note = f"{WOULD_NOT_FIT}: norms, rotation and gated activation taken as fused"
    yield (last := replace(last, stack=last.stack.changed(**_FUSED), assumed=(*last.assumed, note)))
    if case.job.precision.compute == "bf16" and case.job.precision.master_bytes + case.job.precision.param_bytes > 2:
        note = f"{note}; weights, gradients and moments in bf16 alone"
        job = msgspec.structs.replace(case.job, precision=precision_of(SIXTEEN_BITS))
        yield replace(last, job=job, assumed=(*last.assumed[:-1], note))


def sharded_rather(case: MeasuredCase, stack_name: str) -> MeasuredCase | None:
    """Its row with every stage of ZeRO, where nobody told whether it recomputed nor what it sharded: whoever sizes a
    run shards before paying a third of the step for room."""
    row = case.measured
    if row.word("recompute") or row.word("zero_stage_or_fsdp"):
        return None
    return _with_choices(case, stack_name, {"zero_stage_or_fsdp": _stages(case)}, WOULD_RECOMPUTE)


def _open_cells(case: MeasuredCase, stack_name: str) -> MeasuredCase | None:
    """Every choice for the empty cells, of which the best that fits is taken."""
    row = case.measured
    choices: dict[str, list[str]] = {}
    if not row.word("zero_stage_or_fsdp"):
        choices["zero_stage_or_fsdp"] = _stages(case)
    if not row.word("tp") and not row.word("pp") and not row.word("dp"):
        choices["tp"] = [str(tp) for tp in (1, 2, 4, 8) if tp <= case.cluster.node_size]
    return _with_choices(case, stack_name, choices, WOULD_NOT_FIT) if choices else None


def _stages(case: MeasuredCase) -> list[str]:
    return [str(stage) for stage in case.stack.abilities.zero]


def _with_choices(
    case: MeasuredCase, stack_name: str, choices: dict[str, list[str]], because: str
) -> MeasuredCase | None:
    readings = [_filled(case.measured, choices, values, stack_name) for values in product(*choices.values())]
    candidates = tuple(policy for reading in readings if reading for policy in reading.candidates)
    said = ", ".join(f"{column.partition('_')[0]} of {'/'.join(values)}" for column, values in choices.items())
    assumed = (*case.assumed, f"{because}: not published, best that fits: {said}")
    return replace(case, candidates=candidates, assumed=assumed) if candidates else None


def _filled(
    row: MeasuredRow, columns: dict[str, list[str]], values: tuple[str, ...], stack_name: str
) -> MeasuredCase | None:
    try:
        text = {**row.text, **dict(zip(columns, values, strict=True))}
        return measured_case(MeasuredRow(row=row.row, text=text), stack_name)
    except UnsupportedRow:
        return None
