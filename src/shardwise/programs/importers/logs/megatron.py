"""Megatron-LM and what prints its lines: Megatron-Bridge, NeMo, Primus, Megatron-DeepSpeed."""

import re
from collections.abc import Sequence

from msgspec.structs import replace

from shardwise.measured.diagnose.logged import LoggedStep
from shardwise.programs.importers.logs._contract import NUM, LogForm, after, first, number, one_a_line, positive, whole

# Primus prints 'now/average'; the first is this step's
_STEP = re.compile(rf"iteration\s+(\d{{1,12}})\s*/\s*\d{{1,12}}.{{0,1000}}?elapsed time per iteration \(ms\):\s*{NUM}")
_ALONE = re.compile(rf"elapsed time per iteration \(ms\):\s*{NUM}")
_FLOPS = re.compile(rf"throughput per GPU \(TFLOP/s/GPU\):\s*{NUM}")
_ALLOCATED = re.compile(rf"memory \(MB\).{{0,300}}?max allocated:\s*{NUM}")
_RESERVED = re.compile(rf"memory \(MB\).{{0,300}}?max reserved:\s*{NUM}")
_BATCH, _LOSS = after("global batch size"), after("lm loss")
MIB = 2.0**20


def _step(found: "re.Match[str]", line: str) -> LoggedStep:
    seconds, tflops = positive(found[found.lastindex or 1]), positive(first(_FLOPS, line))
    return LoggedStep(
        step=whole(found[1]) if found.lastindex == 2 else None,
        seconds=None if seconds is None else seconds * 1e-3,
        flops_per_s=None if tflops is None else tflops * 1e12,
        global_batch=whole(first(_BATCH, line)),
        loss=number(first(_LOSS, line)),
    )


def _read(lines: Sequence[str]) -> list[LoggedStep]:
    steps = one_a_line(_STEP, _step)(lines) or one_a_line(_ALONE, _step)(lines)
    if not steps:
        return []
    for form, meaning in ((_ALLOCATED, "peak allocated"), (_RESERVED, "peak reserved")):
        peaks = [peak for peak in (positive(first(form, line)) for line in lines) if peak]
        if peaks:
            return [*steps[:-1], replace(steps[-1], peak_bytes=max(peaks) * MIB, memory_is=meaning)]
    return steps


LOG = LogForm(
    name="megatron", title="Megatron", marks=("elapsed time per iteration (ms):",), read=_read,
    caution="Megatron stops its clock while it saves or evaluates: that time shows between the lines only",
)  # fmt: skip
