"""Runs of MaxText that give each expert a fixed number of places (ROCm/rocm-blogs, maxtext-dropless-moe, throughput on
synthetic data): DeepSeek-V3 on 64 MI355X, tokens/s of a GPU by sequences of a GPU and capacity factor."""

import pytest

from shardwise.measured.validate.predict import predict
from shardwise.measured.validate.table import MeasuredRow

SPEEDS = [
    (4, "1.25", 961.1), (4, "2", 813.1), (4, "4", 532.6),
    (8, "1.25", 1292.7), (8, "2", 960.1), (8, "4", 580.7),
    (16, "1.25", 1438.1), (16, "2", 1015.1),
]  # fmt: skip


def speed(sequences: int, factor: str) -> float:
    cells = {
        "source": "x", "model": "DeepSeek-V3", "gpu": "MI355X", "gpus": "64", "gpus_per_node": "8", "seq": "4096",
        "dtype": "bf16", "tp": "1", "pp": "1", "cp": "1", "ep": "8", "zero_stage_or_fsdp": "hsdp(8)",
        "micro_batch": str(sequences), "global_batch": str(64 * sequences), "recompute": "full",
        "software": "MaxText (JAX, ROCm)", "notes": f"capacity factor {factor}",
    }  # fmt: skip
    found = predict([MeasuredRow(row=0, text=cells)])[0].tokens_per_s_per_gpu
    assert found is not None
    return found


@pytest.mark.parametrize(("sequences", "factor", "measured"), SPEEDS)
def test_places_are_filled_by_products_with_masks(sequences: int, factor: str, measured: float) -> None:
    assert speed(sequences, factor) == pytest.approx(measured, rel=0.13 if sequences > 4 else 0.3)


def test_twice_the_places_cost_what_was_measured() -> None:
    assert speed(8, "2") / speed(8, "4") == pytest.approx(960.1 / 580.7, rel=0.08)
    assert speed(16, "1.25") / speed(16, "2") == pytest.approx(1438.1 / 1015.1, rel=0.02)
