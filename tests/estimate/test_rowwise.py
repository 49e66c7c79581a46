"""Scales of rows round an operand once for each product it is in."""

import csv
import importlib
from collections import defaultdict
from pathlib import Path
from typing import Any

import msgspec
import pytest

from shardwise.spec.arch import model_of
from shardwise.spec.job import PRECISIONS, Job
from shardwise.spec.load import cluster_from
from shardwise.spec.policy import Policies, Policy
from shardwise.spec.software import stack_of
from shardwise.step.estimate.closed_form import estimate
from shardwise.work.case import case_of

ROOT = Path(__file__).parents[2]
MEASURED = ROOT / "evidence" / "timed" / "rowwise-h200.csv"
JOB = {"seq": 8192, "global_batch": 16}


def step(gpu: str, precision: str) -> float:
    policy = Policies.of([Policy(dp=8, zero=3, micro_batch=2)])
    job = Job(**JOB, precision=PRECISIONS[precision])
    found = estimate(case_of(model_of("llama-3-8b"), cluster_from(gpu, 8, 8), job, stack_of("torchtitan")), policy)
    return float(found.times.step_s[0])


def test_rows_cost_what_they_did_on_an_h200(monkeypatch: pytest.MonkeyPatch) -> None:
    """Over each model's layers; where tensor parallelism makes products thin, measured kernels share some of the passes
    that are counted apart here."""
    monkeypatch.syspath_prepend(str(ROOT / "evidence"))
    rowwise = importlib.import_module("rowwise")
    shapes: dict[str, list[Any]] = defaultdict(list)
    for row in csv.DictReader(MEASURED.read_text(encoding="utf-8").splitlines()):
        shape, *numbers = row.values()
        shapes[shape].append(rowwise.Timed(shape, *map(float, numbers)))
    assert len(shapes) == 4
    for shape, of in shapes.items():
        off = rowwise.dearer_planned(of) / rowwise.dearer(of) - 1
        assert abs(off) < (0.15 if shape == "llama-3-8b tp8" else 0.05), f"{shape}: {off:+.1%}"


def test_a_step_with_rows_lies_between_bf16_and_whole_tensors() -> None:
    tensors, rows, sixteen = (step("h100", p) for p in ("fsdp-fp8-reduce32", "fsdp-fp8-rowwise", "fsdp-mixed-reduce32"))
    assert tensors < rows < sixteen


def test_a_chip_without_fp8_rounds_nothing() -> None:
    assert step("a100-80", "fsdp-fp8-rowwise") == pytest.approx(step("a100-80", "fsdp-mixed-reduce32"))


def test_the_table_s_dtype_says_which() -> None:
    torchtitan, other = stack_of("torchtitan"), stack_of("megatron-core")
    assert torchtitan.precision_for("fp8-rowwise").name == "fsdp-fp8-rowwise"
    assert torchtitan.precision_for("fp8-tensorwise").name == "fsdp-fp8-reduce32"
    assert other.precision_for("fp8-rowwise").name == "fp8-rowwise-grad32"


@pytest.mark.parametrize("recipe", ["fsdp-fp8-reduce32", "fsdp-fp8-rowwise"])
def test_operands_kept_in_16_bits_are_rounded_again(recipe: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """torchao's layers save what they were given: the backward rounds the input once more, and scales of rows the
    weight for each micro-batch."""
    again = step("h100", recipe)
    monkeypatch.setitem(PRECISIONS, recipe, msgspec.structs.replace(PRECISIONS[recipe], rounds_again=False))
    assert step("h100", recipe) < again < 1.1 * step("h100", recipe)
