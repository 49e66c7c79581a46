"""NeMo 2 on Lightning: 'Training epoch 0, iteration 3/99 | ... | train_step_timing in s: 2.69 | ...'."""

import re

from shardwise.measured.diagnose.logged import LoggedStep
from shardwise.programs.importers.logs._contract import NUM, LogForm, after, first, number, one_a_line, positive, whole

_STEP = re.compile(rf"train_step_timing in s:\s*{NUM}")
_NUMBER, _BATCH, _LOSS = after("global_step"), after("global_batch_size"), after("reduced_train_loss")
_RATE, _FLOPS = after("tokens_per_sec_per_gpu"), after("TFLOPS_per_GPU")
_ALLOCATED, _RESERVED = after("max_memory_allocated"), after("max_memory_reserved")


def _step(found: "re.Match[str]", line: str) -> LoggedStep:
    tflops, allocated = positive(first(_FLOPS, line)), positive(first(_ALLOCATED, line))
    reserved = positive(first(_RESERVED, line))
    return LoggedStep(
        step=whole(first(_NUMBER, line)), seconds=positive(found[1]), global_batch=whole(first(_BATCH, line)),
        loss=number(first(_LOSS, line)), tokens_per_s_per_gpu=positive(first(_RATE, line)),
        flops_per_s=None if tflops is None else tflops * 1e12, peak_bytes=allocated or reserved,
        memory_is="peak allocated" if allocated else "peak reserved" if reserved else "",
    )  # fmt: skip


LOG = LogForm(name="nemo", title="NeMo", marks=("train_step_timing in s:",), read=one_a_line(_STEP, _step))
