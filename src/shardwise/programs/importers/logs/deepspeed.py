"""DeepSpeed: its throughput timer, and the lines of its pipeline engine."""

import re
from collections.abc import Sequence

from shardwise.measured.diagnose.logged import LoggedStep
from shardwise.programs.importers.logs._contract import (
    GIB,
    NUM,
    LogForm,
    by_the_clock,
    first,
    number,
    one_a_line,
    positive,
    whole,
)

_RATE = re.compile(
    rf"(?:global_step=|\b\d{{1,9}}/)(\d{{1,12}}), RunningAvgSamplesPerSec={NUM}, CurrSamplesPerSec={NUM}"
)
_MEAN = re.compile(rf"\b\d{{1,9}}/(\d{{1,12}}), SamplesPerSec={NUM}")
"""of older releases: the mean since the start, which says little of this step"""
_PEAK = re.compile(rf"MaxMemAllocated={NUM}\s*GB")
_PIPELINE = re.compile(rf"\bsteps: (\d{{1,12}}) loss: (\S{{1,30}}) iter time \(s\): {NUM}(?: samples/sec: {NUM})?")


def _throughput(found: "re.Match[str]", line: str) -> LoggedStep:
    peak = positive(first(_PEAK, line))
    return LoggedStep(
        step=whole(found[1]), samples_per_s=positive(found[3]), peak_bytes=None if peak is None else peak * GIB,
        memory_is="peak allocated" if peak else "",
    )  # fmt: skip


def _pipeline(found: "re.Match[str]", _line: str) -> LoggedStep:
    return LoggedStep(
        step=whole(found[1]), loss=number(found[2]), seconds=positive(found[3]), samples_per_s=positive(found[4])
    )


def _read(lines: Sequence[str]) -> list[LoggedStep]:
    return (one_a_line(_PIPELINE, _pipeline)(lines) or one_a_line(_RATE, _throughput)(lines)
            or by_the_clock(one_a_line(_MEAN, _mean)(lines)))  # fmt: skip


def _mean(found: "re.Match[str]", _line: str) -> LoggedStep:
    return LoggedStep(step=whole(found[1]), samples_per_s=positive(found[2]))


LOG = LogForm(name="deepspeed", title="DeepSpeed", marks=("SamplesPerSec=", "iter time (s):"), read=_read)
