"""Composer and llm-foundry: '[batch=20/4800]:', then a line for each figure."""

import re
from collections.abc import Sequence

from shardwise.measured.diagnose.logged import LoggedStep
from shardwise.programs.importers.logs._contract import LogForm, clock, number, positive, whole

_HEAD = re.compile(r"\[batch=(\d{1,12})/\d{1,12}\]:")
_FIELD = re.compile(r"^\s+(?:Train )?([\w/ ]{1,80}):\s*([-+0-9.eE,]{1,40})\s*$")
RATE, BATCHES, LOSS = "throughput/device/tokens_per_sec", "throughput/batches_per_sec", "loss/train/total"
PEAKS = ("memory/peak_reserved_mem", "memory/peak_allocated_mem")


def _read(lines: Sequence[str]) -> list[LoggedStep]:
    found: list[LoggedStep] = []
    record: dict[str, str] = {}
    head: tuple[int, str, str] | None = None

    def close() -> None:
        if head is not None:
            peak = next((value for name in PEAKS if (value := positive(record.get(name)))), None)
            found.append(LoggedStep(
                step=whole(head[2]), line=head[0], at_s=clock(head[1]), loss=number(record.get(LOSS)),
                tokens_per_s_per_gpu=positive(record.get(RATE)), steps_per_s=positive(record.get(BATCHES)),
                peak_bytes=None if peak is None else peak * 1e9, memory_is="peak reserved" if peak else "",
            ))  # fmt: skip

    for place, line in enumerate(lines):
        if begins := _HEAD.search(line):
            close()
            head, record = (place, line, begins[1]), {}
        elif head is not None and (field := _FIELD.match(line)):
            record[field[1].strip()] = field[2]
    close()
    return found


LOG = LogForm(
    name="composer", title="Composer", marks=("[batch=",), read=_read,
    caution="rates of Composer are means over a window of batches: a single slow one shows as several",
)  # fmt: skip
