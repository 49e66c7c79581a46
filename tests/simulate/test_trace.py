"""The trace: what Perfetto asks of it."""

import gzip
import json
from collections import Counter

import pytest

from shardwise.programs.exporters.chrome_trace import trace_events
from shardwise.programs.exporters.trace_events import trace_file, write_events
from shardwise.spec.arch import model_of
from shardwise.spec.job import Job
from shardwise.spec.load import cluster_of
from shardwise.spec.policy import Policy
from shardwise.spec.software import stack_of
from shardwise.step.simulate import simulate
from shardwise.step.simulate.gantt import gantt, legend
from shardwise.step.simulate.timeline import LANES
from shardwise.work.case import case_of

POLICIES = [
    Policy(dp=8, pp=8),
    Policy(dp=8, tp=2, pp=4, vpp=4, schedule="interleaved"),
    Policy(dp=16, pp=4, schedule="zero_bubble_h1"),
    Policy(dp=8, pp=8, schedule="dualpipe"),
    Policy(dp=64, zero=3),
]


def timeline_of(policy):
    job = Job(seq=4096, global_batch=policy.dp * 16)
    return simulate(
        case_of(model_of("llama-3-8b"), cluster_of("dgx-h100:64"), job, stack_of("megatron-core")), policy
    ).timeline()


@pytest.mark.parametrize("policy", POLICIES, ids=lambda p: p.schedule)
def test_events_are_what_the_format_asks(policy):
    timeline = timeline_of(policy)
    events = trace_events(timeline)
    timed = [event for event in events if event["ph"] != "M"]
    assert Counter(e["ph"] for e in timed)["X"] == len(timeline.spans)
    for event in timed:
        assert 0 <= event["pid"] < timeline.ranks
        assert event["ts"] >= 0
        if event["ph"] == "X":
            assert event["dur"] >= 0
            assert 0 <= event["tid"] < len(LANES)
        if event["ph"] == "C":
            assert all(value > -1e-6 for value in event["args"].values())


@pytest.mark.parametrize("policy", POLICIES[:4], ids=lambda p: p.schedule)
def test_every_send_has_an_arrow_that_ends_where_work_starts(policy):
    timeline = timeline_of(policy)
    events = trace_events(timeline)
    starts = {e["id"]: e for e in events if e["ph"] == "s"}
    ends = {e["id"]: e for e in events if e["ph"] == "f"}
    assert set(starts) == set(ends)
    assert len(starts) == timeline.spans.of("pp").sum() > 0
    begins = {(e["pid"], e["ts"]) for e in events if e["ph"] == "X" and e["tid"] == LANES.index("compute")}
    for number, start in starts.items():
        end = ends[number]
        assert end["ts"] >= start["ts"]
        assert end["pid"] != start["pid"]
        assert (end["pid"], end["ts"]) in begins


def test_counters_show_memory_and_links():
    names = {e["name"] for e in trace_events(timeline_of(POLICIES[0])) if e["ph"] == "C"}
    assert names == {"memory GiB", "pp link GB/s", "grad link GB/s", "param link GB/s"}


def test_files(tmp_path):
    timeline = timeline_of(POLICIES[0])
    packed, plain = tmp_path / "a.json.gz", tmp_path / "a.json"
    events = trace_events(timeline)
    assert [write_events(events, trace_file(path, "trace"), "a step") for path in (packed, plain)] == [len(events)] * 2
    assert len(events) > 100
    written = json.loads(plain.read_bytes())
    assert json.loads(gzip.decompress(packed.read_bytes())) == written
    kinds = [event["ph"] for event in written["traceEvents"]]
    assert "M" not in kinds[kinds.count("M") :]
    moments = [event["ts"] for event in written["traceEvents"] if event["ph"] != "M"]
    assert moments == sorted(moments)
    with pytest.raises(ValueError, match=r"\.json\.gz"):
        trace_file(tmp_path / "a.txt", "trace")


@pytest.mark.parametrize("policy", POLICIES, ids=lambda p: p.schedule)
def test_the_drawing_fits_and_shows_the_order(policy):
    timeline = timeline_of(policy)
    lines = gantt(timeline)
    assert max(map(len, lines)) <= 80
    assert len(lines) == policy.pp
    assert legend(timeline)[0].startswith("F forward")
    assert max(map(len, legend(timeline))) <= 80
    assert lines[0].split()[1].startswith(("F", "g"))


def test_many_stages_and_a_long_step_are_cut():
    job = Job(seq=2048, global_batch=512)
    long = simulate(
        case_of(model_of("gpt-3-175b"), cluster_of("dgx-h100:64"), job, stack_of("megatron-core")), Policy(dp=2, pp=32)
    )
    lines = gantt(long.timeline())
    assert len(lines) == 17
    assert max(map(len, lines)) <= 80
    assert any("~" in line for line in lines)
