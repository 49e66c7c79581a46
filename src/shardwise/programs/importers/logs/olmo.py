"""OLMo-core: '[step=20/1000,epoch=1]', then 'throughput/device/TPS=5,120' and the like, a line each."""

import re
from collections.abc import Sequence

from shardwise.measured.diagnose.logged import LoggedStep
from shardwise.programs.importers.logs._contract import GIB, NUM, LogForm, clock, number, positive, whole

_HEAD = re.compile(r"\[step=(\d{1,12})/\d{1,12}(?:,[^\]]{0,100})?\]")
_FIELD = re.compile(rf"^\s*([\w/() ]{{1,80}})={NUM}")
RATE, LOSS = "throughput/device/TPS", "train/CE loss"
PEAKS = ("system/GPU reserved memory (GiB)", "system/GPU active memory (GiB)")
DATA = "throughput/device/data loading (s)"


def _read(lines: Sequence[str]) -> list[LoggedStep]:
    heads = [(place, head[1]) for place, line in enumerate(lines) if (head := _HEAD.search(line))]
    found: list[LoggedStep] = []
    for index, (place, step) in enumerate(heads):
        end = heads[index + 1][0] if index + 1 < len(heads) else min(place + 200, len(lines))
        fields = {each[1].strip(): each[2] for line in lines[place + 1 : end] if (each := _FIELD.match(line))}
        peak = next((value for name in PEAKS if (value := positive(fields.get(name)))), None)
        found.append(LoggedStep(
            step=whole(step), line=place, at_s=clock(lines[place]), tokens_per_s_per_gpu=positive(fields.get(RATE)),
            loss=number(fields.get(LOSS)), peak_bytes=None if peak is None else peak * GIB,
            memory_is="peak reserved" if peak else "", data_s=positive(fields.get(DATA)),
        ))  # fmt: skip
    return found


LOG = LogForm(name="olmo", title="OLMo-core", marks=("throughput/device/TPS",), read=_read)
