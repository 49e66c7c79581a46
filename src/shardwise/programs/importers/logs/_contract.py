"""What a form of log must offer, and the few things that all of them read: numbers, times, colours."""

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise

from msgspec.structs import replace

from shardwise.measured.diagnose.logged import LoggedStep

GIB = 2.0**30
LONGEST_LINE = 16_000
NUM = r"([0-9][0-9,]{0,20}(?:\.[0-9]{0,20})?(?:[eE][+-]?[0-9]{1,3})?)"
_COLOUR = re.compile(r"\x1b\[[0-9;]{0,20}[A-Za-z]")
_CLOCK = re.compile(r"(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d:\d\d)(?:[.,](\d{1,6}))?")
_SCALES = {"": 1.0, "K": 1e3, "M": 1e6, "B": 1e9, "G": 1e9, "T": 1e12}


@dataclass(frozen=True)
class LogForm:
    name: str
    title: str
    marks: tuple[str, ...]
    """one of them stands in every log of this form; looking for them is cheap"""
    read: Callable[[Sequence[str]], list[LoggedStep]]
    """the steps among the lines"""
    mean: Callable[[Sequence[str]], LoggedStep | None] = lambda _lines: None
    """what is printed of the whole run when it ends"""
    caution: str = ""
    """what its figures are not"""


def plain_lines(text: str) -> list[str]:
    """Without colours; a progress bar that was drawn again is a line each time."""
    return [_COLOUR.sub("", line[:LONGEST_LINE]) for line in re.split(r"\r\n|\n|\r", text)]


def number(text: str | None) -> float | None:
    """None for what is no finite number; '1,066', '1.2K' and '3e4' are."""
    if not text:
        return None
    text = text.strip().replace(",", "")
    scale = _SCALES.get(text[-1:].upper()) if text[-1:].isalpha() else 1.0
    try:
        value = float(text[:-1] if text[-1:].isalpha() else text) * (scale or math.nan)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def positive(text: str | None) -> float | None:
    value = number(text)
    return value if value is not None and value > 0 else None


def whole(text: str | None) -> int | None:
    value = number(text)
    return int(value) if value is not None and 0 <= value < 1e15 else None


def clock(line: str) -> float | None:
    """Seconds of the date and time that a line bears, in any zone: only differences are used."""
    found = _CLOCK.search(line[:200])
    if found is None:
        return None
    try:
        day = datetime.strptime(f"{found[1]} {found[2]}", "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC)
    except ValueError:
        return None
    return day.timestamp() + float(f"0.{found[3] or 0}")


def after(key: str) -> "re.Pattern[str]":
    """The number behind 'key:' or 'key='."""
    return re.compile(rf"(?<![\w/]){re.escape(key)}\s{{0,20}}[:=]\s{{0,20}}([-+0-9][-+0-9.,eEKMBT]{{0,40}})")


def summed(*values: float | None) -> float | None:
    """Of those that are there."""
    there = [value for value in values if value is not None]
    return sum(there) if there else None


def one_a_line(
    line_form: "re.Pattern[str]", step_of: Callable[["re.Match[str]", str], LoggedStep]
) -> Callable[[Sequence[str]], list[LoggedStep]]:
    """A reader of logs that print a step in one line."""

    def read(lines: Sequence[str]) -> list[LoggedStep]:
        return [step_at(step_of(found, line), place, line) for place, line, found in _matches(lines, line_form)]

    return read


def step_at(step: LoggedStep, place: int, line: str) -> LoggedStep:
    return replace(step, line=place, at_s=clock(line))


def by_the_clock(steps: list[LoggedStep]) -> list[LoggedStep]:
    """Seconds between lines, where lines bear a time, for programs whose rate says little of a step."""
    found = list[LoggedStep]()
    for before, now in pairwise(steps):
        done, passed = (now.step or 0) - (before.step or 0), (now.at_s or 0.0) - (before.at_s or 0.0)
        if done > 0 and passed > 0:
            found.append(replace(now, seconds=passed / done))
    return found or steps


def first(form: "re.Pattern[str]", line: str) -> str | None:
    found = form.search(line)
    return None if found is None else found[1]


def _matches(lines: Sequence[str], form: "re.Pattern[str]") -> Iterator[tuple[int, str, "re.Match[str]"]]:
    for place, line in enumerate(lines):
        found = form.search(line)
        if found is not None:
            yield place, line, found
