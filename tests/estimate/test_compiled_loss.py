"""What is alive of the logits, against one H200 (evidence/compiled_loss.py)."""

import csv
from pathlib import Path

import pytest

from shardwise.spec.software import stack_of

MEASURED = Path(__file__).parents[2] / "evidence" / "timed" / "compiled-loss-h200.csv"
ROWS = list(csv.DictReader(MEASURED.read_text(encoding="utf-8").splitlines()))


@pytest.mark.parametrize(("kind", "stack"), [("eager", "torch-eager"), ("returned", "fact:compiled")])
def test_bytes_of_a_logit(kind: str, stack: str) -> None:
    rows = [row for row in ROWS if row["kind"] == kind]
    assert rows
    for row in rows:
        # the head's gradient in fp32 comes when an eager loss is over, and while a compiled one is still there
        beside = 4.0 * int(row["width"]) / int(row["tokens"]) if kind == "returned" else 0.0
        measured = float(row["bytes_per_logit"]) - beside
        assert stack_of(stack).loss.loss_logit_bytes == pytest.approx(measured, rel=0.05)


def test_a_loss_inside_the_compiled_model_is_the_shortest_that_returns_its_logits() -> None:
    for vocab in {row["vocab"] for row in ROWS}:
        seconds = {row["kind"]: float(row["seconds"]) for row in ROWS if row["vocab"] == vocab}
        whole, eager = (seconds[kind] - seconds["product"] for kind in ("returned", "eager"))
        passes = (stack_of(name).loss.loss_passes for name in ("fact:compiled", "torch-eager"))
        assert whole / eager == pytest.approx(next(passes) / next(passes), abs=0.2)
