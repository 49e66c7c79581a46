"""Attention inside a window, held against timings that NVIDIA published of the kernels alone (gpt-oss: 128 keys)."""

import csv
from pathlib import Path

import numpy as np
import pytest

from shardwise.cost.curve import curve_of
from shardwise.cost.gpu import attention_seconds
from shardwise.spec.hardware import gpu_of
from shardwise.spec.job import Job, precision_of
from shardwise.spec.model import Attention, FeedForward, Layer, Model
from shardwise.spec.policy import Policies, Policy
from shardwise.spec.software import stack_of
from shardwise.work.layer import layer_work
from shardwise.work.layout import layout_of
from shardwise.work.ops import Attend

TIMED = Path(__file__).resolve().parents[2] / "evidence" / "timed" / "attention-window.csv"


def attend(sequences: int, heads: int, width: int, seq: int, window: int) -> Attend:
    attention = Attention(heads=heads, kv_heads=heads, head_dim=width, window=window)
    layer = Layer(attention=attention, feed_forward=FeedForward(width=4096, glu=True))
    model = Model(name="m", family="llama", hidden=1024, vocab=1000, tied=False, kinds=(layer,), pattern=(0,))
    layout = layout_of(model, Job(seq=seq, global_batch=sequences), Policies.of([Policy(micro_batch=sequences)]))
    found = layer_work(model, layer, layout, precision_of("bf16"), stack_of("megatron-core"), seq).attention
    assert found is not None
    return found


def planned(gpu: str, work: Attend, *, backward: bool) -> float:
    flops = work.forward_flops() * (2.5 if backward else 1.0)
    rows = work.sequences * work.heads * work.queries / work.block
    return float(np.ravel(attention_seconds(curve_of(gpu_of(gpu)), flops, work.block, work.head_dim, rows,
                                            backward=backward))[0])  # fmt: skip


def ratios(gpu: str) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    with TIMED.open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if row["gpu"] == gpu:
                work = attend(*(int(row[name]) for name in ("sequences", "heads", "head_dim", "seq", "window")))
                seconds = planned(gpu, work, backward=row["pass"] == "backward")
                found.setdefault(row["pass"], []).append(1e3 * seconds / float(row["ms"]))
    return found


def test_a_window_on_hopper_takes_what_was_published() -> None:
    found = ratios("h200")
    assert len(found["forward"]) == len(found["backward"]) == 5
    assert all(0.9 < each < 1.05 for kind in found.values() for each in kind), found


@pytest.mark.parametrize("gpu", ["gb200", "gb300"])
def test_on_blackwell_a_window_is_near_what_was_published(gpu: str) -> None:
    """Its curve is fitted on these and on whole sequences together (evidence/fit_published.py)."""
    assert all(0.88 < each < 1.05 for kind in ratios(gpu).values() for each in kind), ratios(gpu)


def test_a_window_as_long_as_the_sequence_is_none() -> None:
    for window in (4096, 8192):
        assert attend(1, 8, 64, 4096, window) == attend(1, 8, 64, 4096, 0)


def test_a_longer_window_takes_longer() -> None:
    times = [planned("h200", attend(1, 32, 128, 8192, window), backward=False) for window in (128, 512, 2048, 0)]
    assert times == sorted(times)
