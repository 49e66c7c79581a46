"""Megatron-Bridge: 'Step Time : 3.21s GPU utilization: 512.3MODEL_TFLOP/s/GPU'."""

import re

from shardwise.measured.diagnose.logged import LoggedStep
from shardwise.programs.importers.logs._contract import NUM, LogForm, first, one_a_line, positive

_STEP = re.compile(rf"Step Time\s*:\s*{NUM}\s*s\b.{{0,200}}?GPU utilization:\s*{NUM}\s*(?:MODEL_)?TFLOP/s/GPU")
_RATE = re.compile(rf"{NUM}\s*tok/s/gpu")
_PEAK = re.compile(rf"Peak Mem:\s*{NUM}\s*GB")


def _step(found: "re.Match[str]", line: str) -> LoggedStep:
    tflops, peak = positive(found[2]), positive(first(_PEAK, line))
    return LoggedStep(
        seconds=positive(found[1]), flops_per_s=None if tflops is None else tflops * 1e12,
        tokens_per_s_per_gpu=positive(first(_RATE, line)), peak_bytes=None if peak is None else peak * 1e9,
        memory_is="peak allocated" if peak else "",
    )  # fmt: skip


LOG = LogForm(name="bridge", title="Megatron-Bridge", marks=("GPU utilization:",), read=one_a_line(_STEP, _step))
