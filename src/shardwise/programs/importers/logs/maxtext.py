"""MaxText: 'completed step: 12, seconds: 15.516, TFLOP/s/device: 508.4, Tokens/s/device: 1055.9, ..., loss: 2.1'."""

import re

from shardwise.measured.diagnose.logged import LoggedStep
from shardwise.programs.importers.logs._contract import NUM, LogForm, after, first, number, one_a_line, positive, whole

_STEP = re.compile(rf"completed step:\s*(\d{{1,12}}),\s*seconds:\s*{NUM}")
_FLOPS = re.compile(rf"TFLOP/s/device:\s*{NUM}")
_RATE = re.compile(rf"Tokens/s/device:\s*{NUM}")
_LOSS = after("loss")


def _step(found: "re.Match[str]", line: str) -> LoggedStep:
    tflops = positive(first(_FLOPS, line))
    return LoggedStep(
        step=whole(found[1]), seconds=positive(found[2]), tokens_per_s_per_gpu=positive(first(_RATE, line)),
        flops_per_s=None if tflops is None else tflops * 1e12, loss=number(first(_LOSS, line)),
    )  # fmt: skip


LOG = LogForm(name="maxtext", title="MaxText", marks=("completed step:",), read=one_a_line(_STEP, _step))
