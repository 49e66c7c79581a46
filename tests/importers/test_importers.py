"""Foreign files: each form read, what is missing said in one line, and nothing ends in another error."""

import gzip
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardwise.importers import nccl_tests, torch_trace, training_log
from shardwise.importers._file import looks_like, read_bytes

RANKS = "\n".join(f"#  Rank {i:2} Group  0 Pid  68{i} on node-{i // 4} device  {i % 4} [0000:04:00] NVIDIA H100 80GB HBM3"
                  for i in range(8))  # fmt: skip
TEXT = f"""# nccl-tests version 2.17.1 nccl-headers=22703 nccl-library=22703
# Collective test starting: all_reduce_perf
# nThread 1 nGpus 1 minBytes 1048576 maxBytes 8589934592 step: 4(factor) warmup iters: 5 iters: 20
# Using devices
{RANKS}
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
     1048576        262144     float     sum      -1     88.1   11.90   20.83      0     87.9   11.93   20.88      0
  1073741824     268435456     float     sum      -1  15012.0   71.53  125.17      0  15010.0   71.54  125.19      0
# Avg bus bandwidth    : 60.0
"""
JSON = {
    "version": 2, "args": ["/opt/all_gather_perf", "-b", "1M"],
    "config": {"nthreads": 1, "ngpus": 4, "devices": [
        {"rank": 0, "hostname": "a", "device_info": "NVIDIA H100 80GB HBM3"}, {"rank": 4, "hostname": "b"}]},
    "results": [
        {"size": 1048576, "type": "float", "out_of_place": {"time": 60.5, "bus_bw": 15.0}, "in_place": {"time": 60.0}},
        {"size": 4194304, "out_of_place": None, "in_place": {"time": 99.5}},
        {"size": 8, "out_of_place": {"time": "nan"}}, "junk",
    ],
}  # fmt: skip
TITAN = (
    "[rank0]:[titan] 2025-02-01 12:00:00 - root - INFO - \x1b[31mstep:  1  \x1b[32mloss: 12.2  \x1b[33mmemory: 45.00GiB(47.20%)"
    "  \x1b[34mtps: 1,066  \x1b[36mtflops: 50.00  \x1b[35mmfu: 5.05%\x1b[39m\n"
    "step: 10  loss:  8.1  memory: 49.58GiB(52.20%)  tps: 5,966  tflops: 280.1  mfu: 28.3%\n"
    "step: 20  loss:  7.1  grad_norm: 1.5  memory: 49.58GiB(52.20%)  tps: 5,980  tflops: 281.1  mfu: 28.4%\n"
)
MEGATRON = """ iteration        1/     100 | consumed samples:  512 | elapsed time per iteration (ms): 30420.1 | lr: 1.0E-05 |
[Rank 0] (after 1 iterations) memory (MB) | allocated: 20000.0 | max allocated: 60001.5 | reserved: 65000.0
 iteration        2/     100 | consumed samples: 1024 | elapsed time per iteration (ms): 8420.1 | loss: 1.0 |
 iteration        3/     100 | consumed samples: 1536 | elapsed time per iteration (ms): 8440.1 | loss: 1.0 |
"""


def trace(shapes: bool = True) -> dict:
    ops = [
        (1, "aten::mm", [[4096, 2048], [2048, 8192]], ["c10::BFloat16", "c10::BFloat16"], 250.0),
        (2, "aten::addmm", [[512], [1024, 256], [256, 512]], ["c10::BFloat16"] * 3, 12.0),
        (3, "aten::_flash_attention_forward", [[2, 4096, 32, 128], [2, 4096, 8, 128]], ["c10::BFloat16"] * 2, 700.0),
        (4, "aten::_scaled_dot_product_flash_attention_backward", [[2, 32, 4096, 128]], ["c10::BFloat16"], 1900.0),
        (5, "aten::mm", [[64, 64], [64, 64]], ["float", "float"], 9.0),
    ]
    events: list[dict] = [{"ph": "M", "name": "process_name", "args": {"name": "python"}}]
    for number, name, dims, types, micros in ops:
        args = {"External id": number} | ({"Input Dims": dims, "Input type": types} if shapes else {})
        events.append({"ph": "X", "cat": "cpu_op", "name": name, "ts": 1.0, "dur": 5, "pid": 1, "tid": 1, "args": args})
        events.append({"ph": "X", "cat": "kernel", "name": "k", "ts": 10000.0 * number, "dur": micros, "pid": 0, "tid": 7,
                       "args": {"External id": number}})  # fmt: skip
    events += [
        {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": 8.0 * i, "dur": 3.0, "pid": 1, "tid": 1}
        for i in range(80)
    ]
    return {"deviceProperties": [{"id": 0, "name": "NVIDIA H200"}], "traceEvents": events}


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


def test_megatron_log():
    facts = training_log.parse(MEGATRON)
    assert facts.step_s == pytest.approx(8.4301)
    assert facts.peak_bytes == pytest.approx(60001.5 * 2**20)
    with pytest.raises(ValueError, match="no training step"):
        training_log.parse("epoch 1 done\n")
    with pytest.raises(ValueError, match="all 0"):
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


@settings(max_examples=250, deadline=None)
@given(st.sampled_from(GOOD), st.sampled_from(PARSERS), junk, st.integers(0, 10**6), st.integers(0, 30))
def test_a_broken_file_is_a_value_error_at_most(raw, parse, noise, at, cut):
    at %= len(raw)
    try:
        parse(raw[:at] + noise + raw[at + cut :])
    except ValueError as error:
        assert str(error).startswith("from: ")
        assert "\n" not in str(error)


values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5), st.sampled_from(["kernel", "cpu_op"])),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(
        st.sampled_from(["cat", "args", "dur", "ts", "External id", "Input Dims", "Input type", "name", "config", "results",
                         "size", "in_place", "time", "devices", "ngpus"]), inner, max_size=4)),
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
        try:
            parse(raw)
        except ValueError as error:
            assert str(error).startswith("from: ")
