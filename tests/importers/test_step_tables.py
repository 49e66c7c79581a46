"""Steps as tables: CSV and JSON of W&B and TensorBoard, a Trainer's state, event files, a plain list."""

import json
import struct

import pytest

from shardwise.event_record import record
from shardwise.measured.diagnose.pace import series_of
from shardwise.programs.importers.event_file import is_event_file, parse_events
from shardwise.programs.importers.step_table import parse_table

TIMES = [4.0, 4.5, 4.25, 4.0]
CLOCK = [100.0, 104.5, 108.75, 112.75]


def read(text: str) -> list[float]:
    log = parse_table(text)
    assert log is not None
    return series_of(log).seconds.tolist()


@pytest.mark.parametrize(("head", "scale"), [
    ("step,step_time", 1), ("iteration,seconds", 1), ("Step,iteration_time_ms", 1e3), ("step;step_s", 1),
    ("_step,perf/step_time_seconds", 1), ("step,train_step_timing in s", 1), ("step,time_per_iteration_ms", 1e3),
    ("Step,run-7 - train/step_time", 1), ("step,time_metrics/end_to_end(s)", 1),
])  # fmt: skip
def test_columns_are_known_by_their_names(head, scale):
    between = ";" if ";" in head else ","
    rows = [f"{number}{between}{seconds * scale}" for number, seconds in enumerate(TIMES, 1)]
    assert read("\n".join([head, *rows])) == pytest.approx(TIMES)


def test_smallest_and_largest_of_a_panel_are_no_steps():
    text = "Step,a - step_time,a - step_time__MIN,a - step_time__MAX\n1,4.0,1.0,9.0\n2,4.5,1.0,9.0\n"
    assert read(text) == [4.0, 4.5]


def test_wall_times_alone():
    rows = [[at, number, 0.1] for number, at in enumerate(CLOCK)]
    assert read(json.dumps(rows)) == pytest.approx(TIMES[1:])
    text = "\n".join(["Wall time,Step,Value", *(f"{at},{number},7.1" for at, number, _ in rows)])
    assert read(text) == pytest.approx(TIMES[1:])


def test_objects_one_a_line_and_a_list():
    rows = [{"_step": n, "train/loss": 1.0, "throughput(tps)": 1 / s} for n, s in enumerate(TIMES)]
    for text in ("\n".join(map(json.dumps, rows)), json.dumps(rows), json.dumps({"log_history": rows})):
        log = parse_table(text)
        assert log is not None
        assert [step.tokens_per_s_per_gpu for step in log.steps] == pytest.approx([1 / s for s in TIMES])
        assert log.steps[0].loss == 1.0


def test_the_log_of_a_run_of_shardwise():
    line = {"step": 1, "loss": 2.0, "step_s": 0.5, "tokens_per_s": 100.0, "peak_bytes": 2**30, "ranks": 4}
    log = parse_table(json.dumps(line) + "\n" + json.dumps(line | {"step": 2}))
    assert log is not None
    assert (log.steps[1].seconds, log.steps[1].peak_bytes, log.steps[1].step) == (0.5, 2**30, 2)


def event(wall: float, step: int, **scalars: float) -> bytes:
    def field(number: int, data: bytes) -> bytes:
        return bytes([number << 3 | 2, len(data)]) + data

    values = b"".join(field(1, field(1, tag.encode()) + bytes([2 << 3 | 5]) + struct.pack("<f", value))
                      for tag, value in scalars.items())  # fmt: skip
    body = bytes([1 << 3 | 1]) + struct.pack("<d", wall) + bytes([2 << 3, step])
    body += field(5, values) if scalars else field(3, b"brain.Event:2")
    return record(body)


def test_event_files():
    raw = event(1.0, 0) + b"".join(event(at, n, step_time=s, loss=1.5) for n, (at, s) in
                                   enumerate(zip(CLOCK, TIMES, strict=True), 1))  # fmt: skip
    assert is_event_file(raw)
    for kept in (raw, raw[:-5]):
        log = parse_events(kept)
        assert log is not None
        assert series_of(log).seconds.tolist() == pytest.approx(TIMES[: len(log.steps)])
        assert log.steps[0].loss == 1.5
    assert len(parse_events(raw).steps) == len(TIMES)


@pytest.mark.parametrize("text", [
    "", "a,b\n1,2\n", "[]", "{}", "[1,2]", "null", "{" * 3000, "step,step_time\n1,nan\n", "\x00,", '{"step": 1}',
    "step,step_time\n1,-3\n", "[[1,2,3]]", '{"log_history": 3}',
])  # fmt: skip
def test_what_is_no_table_of_steps_is_none(text):
    assert parse_table(text) is None


def test_a_huge_number_is_no_time():
    assert parse_table('{"step": 1, "step_time": 1' + "0" * 400 + "}") is None
