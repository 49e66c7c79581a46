"""The operations of a trace that torch itself writes have the fields the importer reads."""

import json

import pytest

from shardwise.programs.importers import torch_trace

torch = pytest.importorskip("torch", reason="torch is not installed: it writes the trace")


def test_operations_of_a_real_trace_are_read(tmp_path):
    activities = [torch.profiler.ProfilerActivity.CPU]
    a, b = torch.randn(32, 48).bfloat16(), torch.randn(48, 16).bfloat16()
    with torch.profiler.profile(activities=activities, record_shapes=True) as profiler:
        torch.mm(a, b)
        torch.addmm(torch.zeros(16).bfloat16(), a, b)
    path = tmp_path / "trace.json"
    profiler.export_chrome_trace(str(path))
    document = json.loads(path.read_text())
    operations = [e for e in document["traceEvents"] if e.get("name") in ("aten::mm", "aten::addmm")]
    assert len(operations) == 2
    # a processor has no kernels: give each operation one, as a GPU's trace would
    document["traceEvents"] += [
        {"ph": "X", "cat": "kernel", "name": "gemm", "ts": e["ts"], "dur": 20.0, "pid": 0, "tid": 7,
         "args": {"External id": e["args"]["External id"]}}
        for e in operations
    ]  # fmt: skip
    facts = torch_trace.parse(json.dumps(document).encode())
    (point,) = facts.points["gemm"]
    assert (point["m"], point["n"], point["k"], point["dtype"]) == (32, 16, 48, "bf16")
    assert point["seconds"] == pytest.approx(20e-6)
