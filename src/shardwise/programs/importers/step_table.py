"""Steps as a table: CSV or JSON of Weights & Biases, TensorBoard, a Trainer's state, or one's own list of step times.

A column is known by its name, whichever of the usual words it has; a table with wall times and steps alone gives the
time of a step by their difference.
"""

import csv
import io
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from shardwise.bounded import json_of
from shardwise.measured.diagnose.logged import MOST_STEPS, LoggedStep, RunLog

GIB = 2.0**30
# the first form that fits a column's name says what it is; those of a GPU stand before those of the job
COLUMNS: tuple[tuple[str, str, float], ...] = (
    ("step", r"(?:_|global_|trainer/global_|train/global_|current_)?(?:step|steps|iteration|iter)", 1.0),
    ("at_s", r"_timestamp|timestamp|wall[ _]?time|_runtime|time_s", 1.0),
    ("data_s", r".*(?:data_loading\(s\)|data_loading_s|data_time|data_wait_s|data_s)", 1.0),
    ("save_s", r".*(?:save_checkpoint|checkpoint_s|save_s)", 1.0),
    ("seconds", r".*(?:step|iteration|iter)[ _-]?(?:time|duration)?[ _]?\(?(?:ms)\)?|.*time_per_iteration_ms", 1e-3),
    ("seconds", r".*(?:train_step_timing in s|time_per_step|(?:step|iteration|iter)[ _-]?(?:time|duration|timing)"
                r"(?:[ _]?\(?s(?:ec|econds)?\)?)?|step_s|step\(s\)|iteration[ _-]time|end_to_end\(s\))", 1.0),
    ("seconds", r"seconds|train/seconds|perf/step_time_seconds", 1.0),
    ("tokens_per_s_per_gpu", r".*(?:throughput\(tps\)|device/tps|tokens_per_sec(?:ond)?_per_gpu|"
                             r"device/tokens_per_sec|tokens/s/(?:gpu|device)|tps_per_gpu|\btps)", 1.0),
    ("tokens_per_s", r".*(?:tokens_per_s(?:ec|econd)?|tokens/s(?:ec)?|tokens_s)", 1.0),
    ("samples_per_s", r".*(?:samples_per_s(?:ec|econd)?|samples/sec)", 1.0),
    ("steps_per_s", r".*(?:steps_per_s(?:ec|econd)?|batches_per_sec|it/s)", 1.0),
    ("flops_per_s", r".*(?:tflops|tflops_per_(?:gpu|rank|device)|tflop/s/(?:gpu|device))", 1e12),
    ("peak_bytes", r".*(?:peak_bytes|max_memory_(?:reserved|allocated))", 1.0),
    ("peak_bytes", r".*(?:max_reserved\(gib\)|peak\(gib\)|max_active\(gib\)|memory\(gib\)|memory_reserved_gb)", GIB),
    ("loss", r"(?:.*/)?(?:loss|train_loss|lm[ _]loss|global_avg_loss|reduced_train_loss|loss/train)", 1.0),
)  # fmt: skip
TIMES = ("seconds", "tokens_per_s_per_gpu", "tokens_per_s", "samples_per_s", "steps_per_s")
WHOLE = ("step", "global_batch")
MOST_COLUMNS = 10_000


def parse_table(text: str) -> RunLog | None:
    """None for a text that is no table of steps."""
    return log_of_rows(table_rows(text))


def table_rows(text: str) -> list[dict[str, Any]]:
    """Of CSV or JSON."""
    return _json_rows(text) if text.lstrip()[:1] in ("{", "[") else _csv_rows(text)


def log_of_rows(rows: Iterable[Mapping[str, Any]], program: str = "a table") -> RunLog | None:
    known: dict[str, tuple[str, float] | None] = {}
    steps: list[LoggedStep] = []
    for place, row in enumerate(rows):
        found: dict[str, Any] = {}
        for name, value in list(row.items())[:MOST_COLUMNS]:
            if name not in known:
                known[name] = _meaning(name)
            meaning, told = known[name], number_in(value)
            if meaning is not None and told is not None and meaning[0] not in found:
                found[meaning[0]] = told * meaning[1]
        step = _step(found, place)
        if step is not None:
            steps.append(step)
        if len(steps) >= MOST_STEPS:
            break
    timed = any(getattr(step, name) for step in steps for name in TIMES)
    walled = sum(step.at_s is not None and step.step is not None for step in steps) > 1
    return RunLog("", program, tuple(steps)) if timed or walled else None


def _step(found: dict[str, Any], place: int) -> LoggedStep | None:
    if not any(name in found for name in (*TIMES, "at_s")):
        return None
    for name in (*TIMES, "flops_per_s", "peak_bytes", "data_s", "save_s"):
        if name in found and not 0 < found[name] < 1e18:
            del found[name]
    if "step" in found:
        found["step"] = int(found["step"]) if 0 <= found["step"] < 1e15 else None
    return LoggedStep(line=place, **found)


def _meaning(name: str) -> tuple[str, float] | None:
    """'run-7 - perf/step_time' of a panel of W&B is 'perf/step_time'; its smallest and largest are left out."""
    if len(name) > 200 or name.endswith(("__MIN", "__MAX")):
        return None
    word = name.rpartition(" - ")[2].strip().lower()
    if word.startswith(("eval", "val", "test/")):
        return None
    return next(((what, scale) for what, form, scale in COLUMNS if re.fullmatch(form, word)), None)


def number_in(value: Any) -> float | None:
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, str):
        try:
            value = float(value.replace(",", ""))
        except ValueError:
            return None
    if not isinstance(value, int | float) or not -1e300 < value < 1e300 or math.isnan(value):
        return None
    return float(value)


def _csv_rows(text: str) -> list[dict[str, Any]]:
    lines = text.splitlines()
    if not lines or len(lines[0]) > 100_000:
        return []
    try:
        dialect: Any = csv.Sniffer().sniff(lines[0][:5000], delimiters=",;\t")
    except csv.Error:
        dialect = csv.excel
    try:
        return list(csv.DictReader(io.StringIO(text), dialect=dialect, restkey="", restval=""))
    except csv.Error:
        return []


def _json_rows(text: str) -> list[dict[str, Any]]:
    """One object a line, a list of objects, a Trainer's state, or TensorBoard's list of [time, step, value]."""
    try:
        data = json_of(text)
    except ValueError:
        return [row for line in text.splitlines() if (row := _object(line)) is not None]
    if isinstance(data, dict):
        data = data.get("log_history", data.get("history", [data]))
    if not isinstance(data, list):
        return []
    return [row for each in data if (row := _row(each)) is not None]


def _object(line: str) -> dict[str, Any] | None:
    try:
        found = msgspec.json.decode(line) if line.lstrip()[:1] == "{" else None
    except (msgspec.DecodeError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _row(each: Any) -> dict[str, Any] | None:
    if isinstance(each, dict):
        return each
    if isinstance(each, Sequence) and len(each) == 3 and not isinstance(each, str):
        return {"wall time": each[0], "step": each[1]}
    return None
