"""Scales of rows round an operand once for each product it is in."""

import csv
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest

from shardwise.arch import model_of
from shardwise.cost.gpu import curve_of, gemm_seconds, rounding_seconds
from shardwise.estimate.closed_form import estimate
from shardwise.spec.job import PRECISIONS, Job
from shardwise.spec.load import cluster_from, gpu_of
from shardwise.spec.policy import Policies, Policy
from shardwise.spec.stack import stack_of

MEASURED = Path(__file__).parents[2] / "docs" / "benchmarks" / "rowwise-h200.csv"
JOB = {"seq": 8192, "global_batch": 16}


def step(gpu: str, precision: str) -> float:
    policy = Policies.of([Policy(dp=8, zero=3, micro_batch=2)])
    job = Job(**JOB, precision=PRECISIONS[precision])
    found = estimate(model_of("llama-3-8b"), cluster_from(gpu, 8, 8), job, policy, stack_of("torchtitan"))
    return float(found.times.step_s[0])


def test_rows_cost_what_they_did_on_an_h200() -> None:
    """Over each model's layers; where tensor parallelism makes products thin, measured kernels share some of the passes
    that are counted apart here."""
    curve = curve_of(gpu_of("h200"), None)
    times: dict[str, np.ndarray] = defaultdict(lambda: np.zeros(4))
    for row in csv.DictReader(MEASURED.read_text(encoding="utf-8").splitlines()):
        m, n, k = (float(row[name]) for name in "mnk")
        passes = ((m, n, k, True), (m, k, n, True), (n, k, m, False))
        tensors = sum(gemm_seconds(curve, *s[:3], "fp8", sustained=False, quantise=s[3]) for s in passes)
        rows = tensors + rounding_seconds(curve, (n + k) * m, "fp8")
        times[row["shape"]] += np.array([tensors, rows, float(row["tensor_s"]), float(row["row_s"])])
    for shape, (tensors, rows, measured_tensors, measured_rows) in times.items():
        off = (rows / tensors) / (measured_rows / measured_tensors) - 1
        assert abs(off) < (0.2 if shape == "llama-3-8b tp8" else 0.05), f"{shape}: {off:+.1%}"


def test_a_step_with_rows_lies_between_bf16_and_whole_tensors() -> None:
    tensors, rows, sixteen = (step("h100", p) for p in ("fsdp-fp8-reduce32", "fsdp-fp8-rowwise", "fsdp-mixed-reduce32"))
    assert tensors < rows < sixteen


def test_a_chip_without_fp8_rounds_nothing() -> None:
    assert step("a100-80", "fsdp-fp8-rowwise") == pytest.approx(step("a100-80", "fsdp-mixed-reduce32"))


def test_the_table_s_dtype_says_which() -> None:
    torchtitan, other = stack_of("torchtitan"), stack_of("megatron-core")
    assert torchtitan.precision_for("fp8-rowwise") == "fsdp-fp8-rowwise"
    assert torchtitan.precision_for("fp8-tensorwise") == "fsdp-fp8-reduce32"
    assert other.precision_for("fp8-rowwise") == "fp8-rowwise"
