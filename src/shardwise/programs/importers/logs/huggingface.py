"""Hugging Face's Trainer and what is built on it (TRL, LLaMA-Factory, axolotl, ms-swift): a dictionary in a line.

A line of a step says nothing of time by itself; what is added to it does, and so does the summary when the run ends.
"""

import re
from collections.abc import Sequence

from shardwise.measured.diagnose.logged import LoggedStep
from shardwise.programs.importers.logs._contract import GIB, LogForm, clock, number, positive, whole

_DICT = re.compile(r"\{\s*['\"](?:loss|eval_loss|train_runtime|train_loss|step)['\"]\s*:.{1,3500}\}")
_PAIR = re.compile(r"['\"]([\w/()\-. ]{1,60})['\"]\s*:\s*['\"]?([-+0-9.eE/]{1,40})['\"]?\s*[,}]")
PER_GPU = ("tokens_per_second_per_gpu", "tokens/train_per_sec_per_gpu")
SEEN = "num_input_tokens_seen"
MEMORY = ("memory(GiB)", "memory/max_mem_active(gib)", "memory/max_active (GiB)", "memory/max_memory_active")


def _fields(line: str) -> dict[str, str]:
    found = _DICT.search(line)
    return {} if found is None else dict(_PAIR.findall(found[0]))


def _any(fields: dict[str, str], names: Sequence[str]) -> float | None:
    return next((value for name in names if (value := positive(fields.get(name))) is not None), None)


def _read(lines: Sequence[str]) -> list[LoggedStep]:
    found: list[LoggedStep] = []
    seen = None
    for place, line in enumerate(lines):
        fields = _fields(line)
        if "loss" not in fields:
            continue
        pace, peak = positive(fields.get("train_speed(iter/s)")), _any(fields, MEMORY)
        per_step, before, seen = positive(fields.get("train_speed(s/it)")), seen, number(fields.get(SEEN))
        if (rate := positive(fields.get("step_tokens_per_second"))) and before and seen and seen > before:
            per_step = (seen - before) / rate
        number_of = fields.get("global_step/max_steps", fields.get("step", "")).partition("/")[0]
        found.append(LoggedStep(
            step=whole(number_of), line=place, at_s=clock(line), loss=number(fields["loss"]),
            seconds=per_step, steps_per_s=pace, tokens_per_s_per_gpu=_any(fields, PER_GPU),
            tokens_per_s=positive(fields.get("throughput")),
            peak_bytes=None if peak is None else peak * GIB, memory_is="peak reserved" if peak else "",
        ))  # fmt: skip
    return found


def _mean(lines: Sequence[str]) -> LoggedStep | None:
    for place, line in reversed(list(enumerate(lines))):
        fields = _fields(line)
        if "train_runtime" in fields:
            return LoggedStep(
                line=place, steps_per_s=positive(fields.get("train_steps_per_second")),
                samples_per_s=positive(fields.get("train_samples_per_second")), loss=number(fields.get("train_loss")),
            )  # fmt: skip
    return None


LOG = LogForm(
    name="huggingface", title="Hugging Face Trainer", read=_read, mean=_mean,
    marks=("'loss':", '"loss":', "'train_runtime':", '"train_runtime":'),
)  # fmt: skip
