"""Foreign files: each form read, what is missing said in one line, and nothing ends in another error."""

import gzip
import json
from collections.abc import Callable

import pytest
from foreign_files import JSON, MEGATRON, RANKS, TEXT, TITAN, trace
from hypothesis import given, settings
from hypothesis import strategies as st

from shardwise.programs.importers import nccl_tests, torch_trace, training_log
from shardwise.programs.importers._file import looks_like, read_bytes


def test_nccl_text():
    run = nccl_tests.parse(TEXT.encode())
    assert (run.ranks, run.nodes, run.device) == (8, 2, "NVIDIA H100 80GB HBM3")
    assert run.points[0] == {
        "op": "all_reduce",
        "bytes": 2**20,
        "ranks": 8,
        "nodes": 2,
        "seconds": pytest.approx(88.1e-6),
    }
    assert len(run.points) == 2


def test_nccl_text_without_the_name_of_the_program():
    unnamed = TEXT.replace("# Collective test starting: all_reduce_perf\n", "")
    assert nccl_tests.parse(unnamed.encode()).points[0]["op"] == "all_reduce"
    gathered = unnamed.replace("20.83", "10.41").replace("125.17", "62.6")
    with pytest.raises(ValueError, match="does not name its collective"):
        nccl_tests.parse(gathered.encode())
    with pytest.raises(ValueError, match="Rank"):
        nccl_tests.parse(TEXT.replace(RANKS, "").encode())


def test_nccl_json():
    run = nccl_tests.parse(json.dumps(JSON).encode())
    assert (run.ranks, run.nodes) == (8, 2)
    assert [(p["op"], p["bytes"], round(p["seconds"] * 1e6, 1)) for p in run.points] == [
        ("all_gather", 2**20, 60.5), ("all_gather", 2**22, 99.5),
    ]  # fmt: skip
    for missing, said in (("args", "args"), ("config", "config"), ("results", "results")):
        with pytest.raises(ValueError, match=said):
            nccl_tests.parse(json.dumps({k: v for k, v in JSON.items() if k != missing}).encode())


def test_torchtitan_log():
    assert training_log.is_training_log(TITAN)
    facts = training_log.parse(TITAN)
    assert facts.tokens_per_s_per_gpu == pytest.approx(5973)
    assert facts.peak_bytes == pytest.approx(49.58 * 2**30)
    assert (facts.steps, facts.software) == (2, "torchtitan")


def test_validation_lines_of_torchtitan_are_no_steps():
    validated = "\x1b[33mvalidate step: 20  loss: 7.0  memory: 90.00GiB(94.70%)  tps: 99,999\x1b[39m\n"
    assert training_log.parse(TITAN + 3 * validated) == training_log.parse(TITAN)
    assert not training_log.is_training_log(validated)


def test_megatron_log():
    facts = training_log.parse(MEGATRON)
    assert facts.step_s == pytest.approx(8.4301)
    assert facts.peak_bytes == pytest.approx(60001.5 * 2**20)
    with pytest.raises(ValueError, match="no training step"):
        training_log.parse("epoch 1 done\n")
    with pytest.raises(ValueError, match="no training step"):
        training_log.parse("elapsed time per iteration (ms): 0.0\n")


def test_trace_with_shapes():
    facts = torch_trace.parse(json.dumps(trace()).encode())
    assert facts.device == "NVIDIA H200"
    assert [(p["m"], p["n"], p["k"]) for p in facts.points["gemm"]] == [(4096, 8192, 2048), (1024, 512, 256)]
    assert facts.points["gemm"][0]["seconds"] == pytest.approx(250e-6)
    forward, backward = facts.points["attention"]
    assert (forward["heads"], forward["seq"], forward["pass"]) == (32, 4096, "forward")
    assert (backward["heads"], backward["seq"], backward["pass"]) == (32, 4096, "backward")
    assert backward["flops"] == 2.5 * forward["flops"]
    assert facts.points["launch"][0]["seconds"] == pytest.approx(8e-6)
    assert facts.idle_share == pytest.approx(1 - (250 + 12 + 700 + 1900 + 9) / 40009)


def test_trace_without_shapes():
    facts = torch_trace.parse(json.dumps(trace(shapes=False)).encode())
    assert list(facts.points) == ["launch"]
    assert "record_shapes" in facts.notes[0]
    with pytest.raises(ValueError, match=r"ProfilerActivity\.CUDA"):
        torch_trace.parse(b'{"traceEvents": []}')
    with pytest.raises(ValueError, match="traceEvents"):
        torch_trace.parse(b'{"events": []}')


def test_files(tmp_path):
    packed = tmp_path / "trace.json.gz"
    packed.write_bytes(gzip.compress(json.dumps(trace()).encode()))
    assert torch_trace.parse(read_bytes(packed)).kernels == 5
    packed.write_bytes(packed.read_bytes()[:60])
    with pytest.raises(ValueError, match="cannot be unpacked"):
        read_bytes(packed)
    with pytest.raises(ValueError, match="cannot be read"):
        read_bytes(tmp_path)
    assert looks_like(TITAN.encode()) == "text"
    assert looks_like(b' \n{"a": 1}') == "json"


GOOD = [TEXT.encode(), json.dumps(JSON).encode(), TITAN.encode(), MEGATRON.encode(), json.dumps(trace()).encode()]
PARSERS = [nccl_tests.parse, lambda raw: training_log.parse(raw.decode("utf-8", "replace")), torch_trace.parse]
junk = st.one_of(
    st.binary(max_size=20), st.sampled_from([b"null", b"-1", b"1e999", b"9" * 30, b"[]", b"{}", b'"x"', b"NaN"])
)


def complaint(parse: Callable[[bytes], object], raw: bytes) -> str | None:
    """What a reader says of a file it refuses; any other error is the test's failure."""
    try:
        parse(raw)
    except ValueError as error:
        return str(error)
    return None


@settings(max_examples=250, deadline=None)
@given(st.sampled_from(GOOD), st.sampled_from(PARSERS), junk, st.integers(0, 10**6), st.integers(0, 30))
def test_a_broken_file_is_a_value_error_at_most(raw, parse, noise, at, cut):
    at %= len(raw)
    said = complaint(parse, raw[:at] + noise + raw[at + cut :])
    assert said is None or said.startswith("from: ")
    assert "\n" not in (said or "")


values = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5), st.sampled_from(["kernel", "cpu_op"])
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(
        st.sampled_from(["cat", "args", "dur", "ts", "External id", "Input Dims", "Input type", "name", "config",
                         "results", "size", "in_place", "time", "devices", "ngpus"]), inner, max_size=4)),
    max_leaves=12,
)  # fmt: skip


@settings(max_examples=200, deadline=None)
@given(st.lists(values, max_size=4), values)
def test_any_json_is_a_value_error_at_most(events, config):
    def text(data: object) -> bytes:
        return json.dumps(data).replace("NaN", "0").replace("-Infinity", "0").replace("Infinity", "0").encode()

    for raw, parse in (
        (text({"traceEvents": events, "deviceProperties": config}), torch_trace.parse),
        (text({"args": ["all_reduce_perf"], "config": config, "results": events}), nccl_tests.parse),
        (text({"args": ["all_reduce_perf"], "config": {"devices": events, "ngpus": config}, "results": [config]}),
         nccl_tests.parse),
    ):  # fmt: skip
        said = complaint(parse, raw)
        assert said is None or said.startswith("from: ")
