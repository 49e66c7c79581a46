"""The parts around the engine: learning rate, log line, where ranks start, what a failed rank says."""

import re
from itertools import pairwise

import pytest

torch = pytest.importorskip("torch")
from shardwise.runtime.launch import device_for  # noqa: E402
from shardwise.runtime.train.fork import forked  # noqa: E402
from shardwise.runtime.train.loop import StepLine, rate_at  # noqa: E402
from shardwise.runtime.train.optimizer import OptimizerSettings  # noqa: E402
from shardwise.runtime.train.task import Settings  # noqa: E402


def test_rate_rises_and_falls() -> None:
    settings = Settings(steps=100, rate=1.0, warmup=10, decay="cosine")
    rates = [rate_at(settings, step) for step in range(100)]
    assert rates[:10] == pytest.approx([0.1 * n for n in range(1, 11)])
    assert rates[10] == pytest.approx(1.0)
    assert all(a > b for a, b in pairwise(rates[10:]))
    assert 0.1 < rates[-1] < 0.11


def test_constant_rate() -> None:
    assert {rate_at(Settings(steps=5, rate=0.3), step) for step in range(5)} == {0.3}


def test_line_has_torchtitans_form() -> None:
    line = StepLine(
        step=3, loss=4.5, grad_norm=1.25, rate=1e-3, step_s=0.5, tokens_per_s=1234.0, tflops_per_rank=0.5, mfu=0.25,
        peak_bytes=2**30,
    )  # fmt: skip
    form = r"step: +3  loss: +4\.5000  grad_norm: +1\.2500  memory: +1\.00GiB  tps: 1,234  tflops: 0\.50  mfu: 25\.00%"
    assert re.fullmatch(form, line.text())


def test_device() -> None:
    assert device_for("cpu", 4) == "cpu"
    with pytest.raises(ValueError, match="device"):
        device_for("tpu", 1)
    if not torch.cuda.is_available():
        assert device_for("auto", 1) == "cpu"
        with pytest.raises(ValueError, match="--device cpu"):
            device_for("cuda", 1)


def test_a_failed_rank_is_told() -> None:
    def work(rank: int) -> int:
        if rank == 1:
            raise ValueError("rank one is unhappy")
        return rank

    assert forked(2, lambda rank: rank * 10) == [0, 10]
    with pytest.raises(RuntimeError, match=r"rank 1 failed(.|\n)*unhappy"):
        forked(2, work)


def test_unknown_optimizer() -> None:
    with pytest.raises(ValueError, match="did you mean"):
        OptimizerSettings(name="adamv")
