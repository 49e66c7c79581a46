"""A training log of torchtitan or Megatron -> step time or tokens/s, and peak memory."""

import math
import re
from dataclasses import dataclass
from statistics import median

GIB = 2.0**30
MOST_STEPS = 1_000_000
WARM_UP = 0.2
"""share of the first steps left out: compilation, allocator and data loader settle there"""
_COLOUR = re.compile(r"\x1b\[[0-9;]{0,20}m")
_NUM = r"([0-9][0-9,]{0,20}(?:\.[0-9]{1,10})?(?:[eE][+-]?[0-9]{1,3})?)"
_TITAN = re.compile(
    rf"(?<!validate )\bstep:\s*\d{{1,9}}\b.{{0,400}}?\bmemory:\s*{_NUM}\s*GiB.{{0,100}}?\btps:\s*{_NUM}"
)
_MEGATRON = re.compile(rf"elapsed time per iteration \(ms\):\s*{_NUM}")
_MEGATRON_MEMORY = re.compile(rf"memory \(MB\).{{0,300}}?max reserved:\s*{_NUM}")
_MEGATRON_ALLOCATED = re.compile(rf"memory \(MB\).{{0,300}}?max allocated:\s*{_NUM}")


@dataclass(frozen=True)
class RunFacts:
    """What a log says of a steady step; what it does not say is None."""

    software: str
    steps: int
    """steps that were counted"""
    step_s: float | None = None
    tokens_per_s_per_gpu: float | None = None
    peak_bytes: float | None = None
    memory_is: str = ""
    """which peak the log prints"""


def is_training_log(text: str) -> bool:
    return _TITAN.search(text[: 2**22]) is not None or "elapsed time per iteration (ms):" in text[: 2**22]


def parse(text: str) -> RunFacts:
    lines = [_COLOUR.sub("", line[:4000]) for line in text.splitlines()]
    titan = [found for found in map(_TITAN.search, lines) if found is not None][:MOST_STEPS]
    if titan:
        rates = _steady([_number(found[2]) for found in titan])
        memory = max(_number(found[1]) for found in titan)
        return RunFacts(
            "torchtitan", len(rates), tokens_per_s_per_gpu=median(rates), peak_bytes=memory * GIB or None,
            memory_is="peak reserved",
        )  # fmt: skip
    times = [_number(found[1]) for found in map(_MEGATRON.search, lines) if found is not None][:MOST_STEPS]
    if not times:
        raise ValueError(
            "from: no training step in the log; torchtitan prints 'step: ... tps: ...', Megatron "
            "'elapsed time per iteration (ms): ...'"
        )
    steady = _steady(times)
    for form, meaning in ((_MEGATRON_ALLOCATED, "peak allocated"), (_MEGATRON_MEMORY, "peak reserved")):
        peaks = [_number(found[1]) for found in map(form.search, lines) if found is not None]
        if peaks and max(peaks) > 0:
            return RunFacts("Megatron", len(steady), median(steady) * 1e-3, None, max(peaks) * 2.0**20, meaning)
    return RunFacts("Megatron", len(steady), median(steady) * 1e-3)


def _number(text: str) -> float:
    value = float(text.replace(",", ""))
    return value if math.isfinite(value) else 0.0


def _steady(values: list[float]) -> list[float]:
    """Without the first steps, and without what is not positive."""
    later = [value for value in values[math.ceil(len(values) * WARM_UP) if len(values) > 1 else 0 :] if value > 0]
    if not later:
        raise ValueError("from: the log's steps are all 0; write a log of steps that ran")
    return later
