"""Timers that programs print beside their steps: DeepSpeed's breakdown, Megatron's over all ranks."""

import re
from collections.abc import Sequence

from shardwise.measured.diagnose.logged import LoggedTimer
from shardwise.programs.importers.logs._contract import number

MOST_TIMERS = 200_000
_ROW = re.compile(r"\btime \(ms\) \|(.{1,4000})$")
_CELL = re.compile(r"([A-Za-z][\w/ \-]{0,60}?):\s*([0-9][0-9.]{0,20})\s*(?:\||$)")
_BLOCK = re.compile(r"(\(min, max\) time|max time|times) across ranks \(ms\):")
_LINE = re.compile(
    r"^\s{1,12}([A-Za-z][\w/\-]{0,60})\s*\.*\s*:\s*(?:\(([0-9.]{1,20}), ([0-9.]{1,20})\)|([0-9.]{1,20}))?\s*$"
)
_RANK = re.compile(r"^\s{1,12}rank\s+(\d{1,7}): ([0-9.]{1,20})\s*$")
_SETUP = re.compile(r"load-checkpoint|setup|iterators|model.and.optimizer|save-checkpoint|evaluate|barrier")


def timers_of(lines: Sequence[str]) -> tuple[LoggedTimer, ...]:
    """In the order of the log; of micro-batches only where their sum is not printed."""
    found: list[LoggedTimer] = []
    block = False
    for place, line in enumerate(lines):
        if len(found) >= MOST_TIMERS:
            break
        if (row := _ROW.search(line)) is not None:
            found += [timer for name, text in _CELL.findall(row[1]) if (timer := _timer(name, place, text, text))]
        elif _BLOCK.search(line) is not None:
            block = True
        elif block and (rank := _RANK.match(line)) is not None and found:
            found[-1] = _with_rank(found[-1], int(rank[1]), (number(rank[2]) or 0.0) * 1e-3)
        elif block and (each := _LINE.match(line)) is not None:
            timer = _timer(each[1], place, each[2] or each[4] or "0", each[3] or each[4] or "0")
            found += [timer] if timer is not None else []
        elif block:
            block = False
    whole = {timer.name for timer in found}
    return tuple(timer for timer in found if timer.name.removesuffix("_microstep") not in whole - {timer.name})


def _timer(name: str, line: int, low: str, high: str) -> LoggedTimer | None:
    least, most = number(low), number(high)
    if least is None or most is None or _SETUP.search(name):
        return None
    return LoggedTimer(name=name.strip(), line=line, low_s=least * 1e-3, high_s=most * 1e-3)


def _with_rank(timer: LoggedTimer, rank: int, seconds: float) -> LoggedTimer:
    """A rank more of a timer that lists all; its heading stands as 0."""
    first = timer.slowest is None
    return LoggedTimer(
        name=timer.name, line=timer.line, low_s=seconds if first else min(timer.low_s, seconds),
        high_s=max(timer.high_s, seconds), slowest=rank if first or seconds > timer.high_s else timer.slowest,
    )  # fmt: skip
