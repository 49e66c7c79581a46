"""The writer of trace events: the only one, whole files, several traces in one."""

import json
import re
from pathlib import Path

import pytest

from shardwise.programs.exporters.trace_events import (
    arrow,
    counter,
    one_below_the_other,
    process_name,
    span,
    thread_name,
    trace_file,
    write_events,
)

ROOT = Path(__file__).parents[2]


def small():
    return [
        *process_name(0, "stage 0"),
        thread_name(0, 2, "compute"),
        span(0, 2, "forward 1", "compute", 0.5, 0.75, {"bytes": 3.0}),
        *arrow(0, "send", "pp", (0, 2, 0.5), (1, 2, 1.0)),
        counter(0, "memory GiB", 0.25, {"parameters": 1.5}),
    ]


def test_seconds_become_microseconds_in_the_order_of_time(tmp_path):
    path = tmp_path / "a.json"
    assert write_events(small(), trace_file(path, "trace"), "a step") == 7
    found = json.loads(path.read_text())
    assert found["otherData"] == {"tool": "shardwise", "title": "a step"}
    told = [(event["ph"], event.get("ts"), event.get("dur")) for event in found["traceEvents"]]
    assert told == [("M", None, None)] * 3 + [("C", 0.25e6, None), ("X", 0.5e6, 0.25e6), ("s", 0.5e6, None),
                                              ("f", 1e6, None)]  # fmt: skip


def test_traces_stand_one_below_the_other():
    both = one_below_the_other({"measured": small(), "predicted": small()})
    names = {event["pid"]: event["args"]["name"] for event in both if event["name"] == "process_name"}
    assert names == {0: "measured: stage 0", 2: "predicted: stage 0"}
    orders = {event["pid"]: event["args"]["sort_index"] for event in both if event["name"] == "process_sort_index"}
    assert orders == {0: 0, 2: 2}
    assert [event["id"] for event in both if event["ph"] == "s"] == [0, 1]


@pytest.mark.parametrize(("name", "cure"), [("a.txt", r"ends in \.json or \.json\.gz"), ("no/a.json", "another path")])
def test_a_bad_name_is_one_line_with_its_flag(name, cure, tmp_path):
    with pytest.raises(ValueError, match=rf"^perfetto: .*{cure}"):
        write_events(small(), trace_file(tmp_path / name, "perfetto"), "a step")
    assert list(tmp_path.iterdir()) == []


def test_there_is_no_other_writer():
    kept = re.compile(r"""["']ph["']\s*:""")
    found = [
        path.name for path in sorted((ROOT / "src").rglob("*.py")) if kept.search(path.read_text(encoding="utf-8"))
    ]
    assert found == ["trace_events.py"]
