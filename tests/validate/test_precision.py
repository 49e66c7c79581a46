"""What eight bits gain, by pairs of runs that differ in the dtype alone."""

import importlib
from pathlib import Path

import pytest

from shardwise.measured.validate.predict import predict
from shardwise.measured.validate.table import MeasuredRow

ROW = {
    "source": "x", "model": "Llama3-8B", "gpu": "H100-80GB-SXM", "gpus": "8", "gpus_per_node": "8", "seq": "8192",
    "zero_stage_or_fsdp": "fsdp", "micro_batch": "1", "global_batch": "8", "recompute": "selective",
    "software": "torchtitan (torch.compile)",
}  # fmt: skip


def test_a_pair_is_two_runs_that_differ_in_the_dtype(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    speeds = {"bf16": "6150", "fp8-tensorwise": "7689", "fp8-rowwise": "6768"}
    rows = [ROW | {"dtype": dtype, "tokens_per_s_per_gpu": speed} for dtype, speed in speeds.items()]
    rows.append(rows[1] | {"micro_batch": "2", "global_batch": "16"})
    found = predict([MeasuredRow(row=i, text=row) for i, row in enumerate(rows)])
    pairs = importlib.import_module("precision").pairs_of(found)
    assert [pair.dtype for pair in pairs] == ["fp8-tensorwise", "fp8-rowwise"]
    tensors, rows_ = pairs
    assert round(tensors.measured, 2) == 1.25
    assert 1.0 < rows_.predicted < tensors.predicted < 1.5
