"""A trace in pieces is the trace as a whole, wherever the pieces are cut and however it is written."""

import gzip
import json
import random
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardwise.programs.importers import trace_stream
from shardwise.programs.importers.kineto import read_trace
from shardwise.programs.importers.trace_stream import EventStream

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "diagnose"))
from made_traces import Made, events_of

ODD = ["plain", 'quote " and \\ backslash', "},{", "]}", '\\"}, {\\"', "é\u2028", "{[" * 5]


def events(count: int, seed: int = 3) -> list[dict]:
    draw = random.Random(seed)
    return [
        {"ph": "X", "cat": "kernel", "name": draw.choice(ODD), "ts": float(n), "dur": 1.5, "pid": 0, "tid": 7,
         "args": {"stream": 7, "nested": {"a": [{"b": [1, {}]}, {"c": draw.choice(ODD)}], "d": {}}}}
        for n in range(count)
    ]  # fmt: skip


def named(path: Path) -> list[str]:
    return [event.name for piece in EventStream(path) for event in piece]


@pytest.mark.parametrize("indent", [None, 1, 4])
@pytest.mark.parametrize("piece", [64, 257, 5000, 10**6])
def test_pieces_of_any_size(tmp_path, monkeypatch, indent, piece):
    monkeypatch.setattr(trace_stream, "PIECE", piece)
    written, path = events(40), tmp_path / "trace.json"
    path.write_text(json.dumps({"a": {"b": 1}, "traceEvents": written, "after": ["x", {"y": "]"}]}, indent=indent))
    stream = EventStream(path)
    assert [event.name for part in stream for event in part] == [event["name"] for event in written]
    assert stream.about == {"a": {"b": 1}, "after": ["x", {"y": "]"}]}
    assert not stream.cut_off


def test_a_list_without_a_name_and_a_packed_file(tmp_path):
    written = events(30)
    bare, packed = tmp_path / "bare.json", tmp_path / "packed.json.gz"
    bare.write_text(json.dumps(written))
    packed.write_bytes(gzip.compress(json.dumps({"traceEvents": written}).encode()))
    assert named(bare) == named(packed) == [event["name"] for event in written]


@settings(max_examples=60, deadline=None)
@given(st.integers(60, 6000), st.sampled_from([97, 1000, 10**6]))
def test_a_file_that_ends_in_the_middle(tmp_path_factory, at, piece):
    path = tmp_path_factory.mktemp("cut") / "trace.json"
    written = events(40)
    whole = json.dumps({"traceEvents": written})
    path.write_text(whole[: min(at, len(whole) - 3)])
    kept, trace_stream.PIECE = trace_stream.PIECE, piece
    try:
        stream = EventStream(path)
        found = [event.name for part in stream for event in part]
    finally:
        trace_stream.PIECE = kept
    assert stream.cut_off
    assert found == [event["name"] for event in written[: len(found)]]


def test_events_of_wrong_types_are_left_out(tmp_path):
    path = tmp_path / "trace.json"
    odd = [3, None, "x", [], {"ph": "X", "cat": "kernel", "args": [1]}, {"args": "x", "cat": 3}, {"ts": {"a": 1}}]
    good = {"ph": "X", "cat": "kernel", "name": "good", "ts": 1.0, "dur": 2.0, "args": {"correlation": "no"}}
    path.write_text(json.dumps({"traceEvents": [*odd, good, {**good, "ts": "soon"}, {**good, "dur": 10**400}]}))
    (trace,) = read_trace(path)
    assert [trace.names[place].name for place in trace.what] == ["good"]


@pytest.mark.parametrize("content", [
    b"{", b'{"traceEvents": [}', b'{"traceEvents": 3}', b'{"other": []}', b'{"traceEvents": [',
    b'{"traceEvents": [{"a": nul}]}', b'{"traceEvents": [' + b"[" * 9000,
])  # fmt: skip
def test_what_is_no_trace_is_one_line(tmp_path, content):
    path = tmp_path / "trace.json"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"run: trace\.json") as error:
        read_trace(path)
    assert "\n" not in str(error.value)


def test_kernels_launches_and_collectives(tmp_path):
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": events_of(Made(gaps=10.0), 0),
                                "distributedInfo": {"rank": 3, "world_size": 4}}))  # fmt: skip
    (trace,) = read_trace(path)
    assert (trace.rank, trace.world, len(trace.steps)) == (3, 4, 5)
    (collective,) = [name for name in trace.names if name.kind == "comm"]
    assert (collective.op, collective.ranks, collective.group_size) == ("all_reduce", (0, 1, 2, 3), 4)
    kernels = trace.of_kind("compute")
    assert (trace.launched_s[kernels] < trace.start_s[kernels]).all()
    assert sorted(trace.sequence[trace.of_kind("comm")].tolist()) == [0, 1, 2, 3, 4]


def test_facts_of_a_collective_may_stand_on_the_host_only(tmp_path):
    told = {
        "Collective name": "_allgather_base",
        "Group size": 8,
        "Process Group Ranks": "[0, 1, ..., 7]",
        "External id": 9,
    }
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": [
        {"ph": "X", "cat": "cpu_op", "name": "record_param_comms", "ts": 1.0, "dur": 1.0, "args": told},
        {"ph": "X", "cat": "kernel", "name": "ncclDevKernel_AllGather_RING_LL", "ts": 3.0, "dur": 1.0,
         "args": {"External id": 9}},
    ]}))  # fmt: skip
    (trace,) = read_trace(path)
    name = trace.names[trace.what[0]]
    assert (name.op, name.group_size, name.ranks) == ("all_gather", 8, ())


def test_numbers_that_are_none_and_text_that_is_no_text(tmp_path):
    path = tmp_path / "trace.json"
    raw = json.dumps(
        {"traceEvents": [*events(30), {"ph": "X", "cat": "kernel", "name": "last", "ts": 1.0, "dur": 2.0}]}
    )
    raw = raw.replace('"stream": 7', '"stream": 7, "blocks per SM": inf, "occupancy": -NaN, "grid": [nan, 1]')
    path.write_bytes(raw.encode().replace(b'"name": "plain"', b'"name": "pl\xff\xfein"'))
    found = named(path)
    assert len(found) == 31
    assert found[-1] == "last"


def test_products_with_their_shapes_by_way_of_the_launch(tmp_path):
    def operator(name: str, external: int, dims: object, kinds: object) -> dict:
        told = {"External id": external, "Input Dims": dims, "Input type": kinds}
        return {"ph": "X", "cat": "cpu_op", "name": name, "ts": 1.0, "dur": 1.0, "args": told}

    bf16 = ["c10::BFloat16"] * 3
    rows = [
        operator("aten::mm", 1, [[8, 16], [16, 32]], bf16), operator("aten::addmm", 2, [[32], [8, 16], [16, 32]], bf16),
        operator("aten::mm", 3, [[8, 16], [15, 32]], bf16), operator("aten::mm", 4, "no", bf16),
        operator("aten::mm", 5, [[8, 16], [16, 32]], ["float"] * 2), operator("aten::mm", 6, [[8], [16, 32]], bf16),
    ]  # fmt: skip
    for external in range(1, 7):
        call = {"External id": external, "correlation": 10 + external}
        launch = {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": 2.0, "dur": 1.0}
        rows.append(launch | {"args": call})
        rows.append({"ph": "X", "cat": "kernel", "name": "gemm", "ts": 9.0 * external, "dur": 3.0,
                     "args": {"correlation": 10 + external}})  # fmt: skip
    # the first product clears its result before
    rows.append(launch | {"args": {"External id": 1, "correlation": 30}})
    rows.append({"ph": "X", "cat": "gpu_memset", "name": "Memset (Device)", "ts": 5.0, "dur": 1.0,
                 "args": {"correlation": 30}})  # fmt: skip
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": rows}))
    (trace,) = read_trace(path)
    told = [(each.m, each.n, each.k, each.dtype, each.calls, round(each.seconds * 1e6, 6)) for each in trace.products]
    assert told == [(8, 32, 16, "bf16", 2, 7.0)]
