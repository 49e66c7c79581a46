"""torchtitan, and shardwise's own `run`: 'step: 20  loss: 7.1  memory: 49.58GiB(52.2%)  tps: 5,980  tflops: 281'."""

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

# a validation prints the same words, and its rate is another
_STEP = re.compile(rf"(?<!validate )\bstep:\s*(\d{{1,9}})\b.{{0,400}}?\bmemory:\s*{NUM}\s*GiB.{{0,100}}?\btps:\s*{NUM}")
_LOSS, _FLOPS = after("loss"), after("tflops")


def _step(found: "re.Match[str]", line: str) -> LoggedStep:
    memory, tflops = positive(found[2]), positive(first(_FLOPS, line))
    return LoggedStep(
        step=whole(found[1]), tokens_per_s_per_gpu=positive(found[3]), loss=number(first(_LOSS, line)),
        peak_bytes=None if memory is None else memory * GIB, memory_is="peak reserved",
        flops_per_s=None if tflops is None else tflops * 1e12,
    )  # fmt: skip


LOG = LogForm(name="torchtitan", title="torchtitan", marks=("tps:",), read=one_a_line(_STEP, _step))
