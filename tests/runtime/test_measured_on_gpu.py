"""What was measured on one GPU, against what the present model predicts: it holds, and the page says so."""

import json
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))
import _runtime_gpu_page as page  # noqa: E402
import runtime_gpu  # noqa: E402
from shardwise.cost.calibrate.profile import profile_of  # noqa: E402


@pytest.fixture(scope="module")
def rows():
    profile = profile_of(runtime_gpu.PROFILE)
    expected = [runtime_gpu.predicted(case, profile) for case in runtime_gpu.cases()]
    stored = json.loads(page.STORED.read_text(encoding="utf-8"))
    return stored, page.joined(stored, expected)


def test_the_page_is_of_the_present_model(rows) -> None:
    stored, joined = rows
    assert page.PAGE.read_text(encoding="utf-8") == page.page(stored, joined), "run benchmarks/runtime_gpu.py --page"


def test_predictions_hold(rows) -> None:
    one = [r for r in rows[1] if r["gpus"] == 1 and not r["waits"]]
    many = [r for r in rows[1] if r["gpus"] > 1]
    assert sum(abs(r["time_error"]) <= 0.05 for r in one) >= 12
    assert sum(abs(r["time_error"]) <= 0.05 for r in many) >= 8
    assert max(abs(r["memory_error"]) for r in rows[1]) <= 0.03
    assert rows[0]["plain_loop_ms"] / rows[0]["llama8b_cut_ms"] >= 0.98
