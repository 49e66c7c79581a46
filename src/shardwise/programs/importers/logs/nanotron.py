"""nanotron: 'iteration: 3 / 100 | ... | time_per_iteration_ms: 1.2K | tokens_per_sec_per_gpu: 5.6K | ...'."""

import re

from shardwise.measured.diagnose.logged import LoggedStep
from shardwise.programs.importers.logs._contract import LogForm, after, first, number, one_a_line, positive, whole

_STEP = re.compile(r"iteration:\s*(\d{1,12})\s*/\s*\d{1,12}\s*\|.{0,600}?time_per_iteration_ms:\s*([0-9.]{1,20}[KMB]?)")
_RATE, _FLOPS = after("tokens_per_sec_per_gpu"), after("model_tflops_per_gpu")
_LOSS = after("lm_loss")


def _step(found: "re.Match[str]", line: str) -> LoggedStep:
    milliseconds, tflops = positive(found[2]), positive(first(_FLOPS, line))
    return LoggedStep(
        step=whole(found[1]), seconds=None if milliseconds is None else milliseconds * 1e-3,
        tokens_per_s_per_gpu=positive(first(_RATE, line)), loss=number(first(_LOSS, line)),
        flops_per_s=None if tflops is None else tflops * 1e12,
    )  # fmt: skip


LOG = LogForm(
    name="nanotron", title="nanotron", marks=("time_per_iteration_ms:",), read=one_a_line(_STEP, _step),
    caution="nanotron prints three digits: differences below a percent are its rounding",
)  # fmt: skip
