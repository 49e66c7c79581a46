"""Logs of training programs: one file for each form, told apart by what stands in them."""

import re
from collections.abc import Sequence
from functools import cache
from itertools import pairwise

from shardwise.measured.diagnose.logged import MOST_STEPS, LoggedStep, LogMark, RunLog
from shardwise.programs.importers.logs._contract import LogForm, plain_lines
from shardwise.programs.importers.logs._timers import timers_of
from shardwise.registry import plugins

MOST_MARKS = 100_000
_SAVED = re.compile(r"sav(?:ing|ed).{0,40}checkpoint|checkpoint.{0,60}sav(?:ing|ed)|saving model checkpoint", re.I)
_RETRIED = re.compile(
    r"[1-9]\d{0,8} \S{1,8} memory allocation retries|[1-9]\d{0,8} pytorch allocator cache flushes|"
    r"alloc_retries['\"]?\s*[:=]\s*[1-9]", re.I
)  # fmt: skip
_RANK = re.compile(r"\s*(\[(?:rank|default)\s?\d{1,6}\]|\d{1,6}):")
"""as torchrun and `srun --label` write it"""
_EVALUATED = re.compile(
    r"validate step:|validation loss at iteration|['\"]eval_loss['\"]|running evaluation|running validation", re.I
)


@cache
def log_forms() -> dict[str, LogForm]:
    found: dict[str, LogForm] = {}
    for file, form in plugins("shardwise.programs.importers.logs", "LOG").items():
        if not isinstance(form, LogForm) or form.name != file:
            raise TypeError(f"importers/logs/{file}.py: LOG is not a LogForm, or has another name than its file")
        found[form.name] = form
    return found


def parse_log(text: str) -> RunLog | None:
    """The form that says the time of most steps; None for a text that is no log."""
    forms = [form for form in log_forms().values() if any(mark in text for mark in form.marks)]
    if not forms:
        return None
    lines = plain_lines(text)
    read = [(form, form.read(lines)[:MOST_STEPS], form.mean(lines)) for form in forms]
    form, steps, mean = max(read, key=lambda each: (_timed(each[1]), _exact(each[1]), each[2] is not None))
    if not _timed(steps) and mean is None:
        return None
    mean = mean or next((other for _, _, other in read if other is not None), None)
    return RunLog(
        "", form.title, tuple(_of_one_rank(steps, lines)), tuple(_marks(lines)), timers_of(lines), mean, form.caution
    )  # fmt: skip


def _of_one_rank(steps: Sequence[LoggedStep], lines: Sequence[str]) -> list[LoggedStep]:
    """Where several ranks print their steps: those of the first that launchers name, else the first of each step."""
    ranks = [found[1] if (found := _RANK.match(lines[step.line])) else "" for step in steps]
    first = next((rank for rank in ranks if rank), "")
    kept = [step for step, rank in zip(steps, ranks, strict=True) if rank in (first, "")]
    return kept[:1] + [now for before, now in pairwise(kept) if now.step is None or now.step != before.step]


def _timed(steps: Sequence[LoggedStep]) -> int:
    return sum(1 for step in steps if step.seconds or step.tokens_per_s_per_gpu or step.samples_per_s
               or step.steps_per_s or step.tokens_per_s)  # fmt: skip


def _exact(steps: Sequence[LoggedStep]) -> int:
    """Of two programs that print of the same steps, the one that prints seconds."""
    return sum(1 for step in steps if step.seconds and step.step is not None)


def _marks(lines: Sequence[str]) -> list[LogMark]:
    found: list[LogMark] = []
    for place, line in enumerate(lines):
        what = (
            "retries"
            if _RETRIED.search(line)
            else "checkpoint"
            if _SAVED.search(line)
            else "evaluation"
            if _EVALUATED.search(line)
            else ""
        )
        if what:
            found.append(LogMark(line=place, what=what))
    return found[:MOST_MARKS]
