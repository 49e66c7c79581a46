"""Attention on Blackwell, held against timings that NVIDIA published of the kernels alone."""

import csv
from pathlib import Path
from statistics import median

from shardwise.cost.curve import curve_of
from shardwise.cost.gpu import attention_seconds
from shardwise.spec.hardware import gpu_of

TIMED = Path(__file__).resolve().parents[2] / "evidence" / "timed" / "attention-blackwell.csv"
SIZES = ("sequences", "heads", "head_dim", "value_dim", "seq")


def ratios() -> dict[tuple[str, str], list[float]]:
    """Planned over published seconds, by GPU and pass: causal, bf16, cuDNN."""
    found: dict[tuple[str, str], list[float]] = {}
    with TIMED.open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            sequences, heads, width, value, seq = (int(row[size]) for size in SIZES)
            backward = row["pass"] == "backward"
            flops = 1.0 * sequences * heads * seq**2 * (3 * width + 2 * value if backward else width + value)
            planned = attention_seconds(
                curve_of(gpu_of(row["gpu"])), flops, seq, width, sequences * heads, backward=backward
            )
            found.setdefault((row["gpu"], row["pass"]), []).append(1e3 * float(planned) / float(row["ms"]))
    return found


def test_planned_attention_is_near_the_published_kernels() -> None:
    found = ratios()
    assert sum(map(len, found.values())) == 38
    for kind, each in found.items():
        assert min(each) > 0.8, kind
        assert max(each) < 1.4, kind
        # in training a kernel is slower than alone, if anything
        assert 0.9 < median(each) < 1.2, kind
