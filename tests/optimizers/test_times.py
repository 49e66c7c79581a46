"""Milliseconds of one matrix' update on an H200, torch 2.11, best of 4 times 5 steps over 8 (3 of the largest) matrices
in fp32, against the planner's price of the same."""

import csv
from pathlib import Path

import pytest

from shardwise.cost.gpu import curve_of, gemm_seconds, memory_seconds
from shardwise.plugins.optimizers import moved_besides_state, update_rule
from shardwise.spec.job import precision_of
from shardwise.spec.load import gpu_of

TABLE = Path(__file__).resolve().parents[2] / "evidence" / "timed" / "matrix_updates.csv"
MEASURED = [
    tuple(float(value) if value else None for value in row.values())
    for row in csv.DictReader(TABLE.read_text().splitlines())
]
"""rows, columns, torch.optim.Muon, Adafactor, AdamW (fused). None: torch waits for the host twice a matrix, which takes
longer than a small one"""
CURVE, FP32 = curve_of(gpu_of("h200")), precision_of("fp32")


def milliseconds(name, rows, columns):
    rule = update_rule(name)
    products = sum(p.times * float(gemm_seconds(CURVE, p.m, p.n, p.k)) for p in rule.products(rows, columns))
    each = moved_besides_state(FP32) + rule.passes_bytes + 2 * rule.moments * FP32.moment_bytes
    return 1e3 * (products + float(memory_seconds(CURVE, rows * columns * each, "optimizer")))


@pytest.mark.parametrize(("rows", "columns", "muon", "adafactor", "adamw"), MEASURED)
def test_price(rows, columns, muon, adafactor, adamw):
    assert milliseconds("muon", rows, columns) == pytest.approx(muon, rel=0.08)
    assert milliseconds("adamw", rows, columns) == pytest.approx(adamw, rel=0.04)
    if adafactor:
        assert milliseconds("adafactor", rows, columns) == pytest.approx(adafactor, rel=0.06)
