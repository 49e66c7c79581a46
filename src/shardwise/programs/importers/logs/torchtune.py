"""torchtune's disk logger: 'Step 3 | loss:1.2 lr:1e-5 tokens_per_second_per_gpu:3210 peak_memory_alloc:45.1'."""

import re

from shardwise.measured.diagnose.logged import LoggedStep
from shardwise.programs.importers.logs._contract import (
    GIB,
    NUM,
    LogForm,
    after,
    first,
    number,
    one_a_line,
    positive,
    whole,
)

_STEP = re.compile(rf"\bStep (\d{{1,12}}) \|.{{0,400}}?\btokens_per_second_per_gpu:\s*{NUM}")
_LOSS, _PEAK = after("loss"), after("peak_memory_alloc")


def _step(found: "re.Match[str]", line: str) -> LoggedStep:
    peak = positive(first(_PEAK, line))
    return LoggedStep(
        step=whole(found[1]), tokens_per_s_per_gpu=positive(found[2]), loss=number(first(_LOSS, line)),
        peak_bytes=None if peak is None else peak * GIB, memory_is="peak allocated" if peak else "",
    )  # fmt: skip


LOG = LogForm(name="torchtune", title="torchtune", marks=("tokens_per_second_per_gpu:",), read=one_a_line(_STEP, _step))
