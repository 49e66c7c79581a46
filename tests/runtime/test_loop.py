"""The parts around the engine: learning rate, log line, where ranks start, what a failed rank says."""

import re
from itertools import pairwise

import pytest

torch = pytest.importorskip("torch")
from shardwise.run.runtime.launch import device_for  # noqa: E402
from shardwise.run.runtime.train.fork import forked  # noqa: E402
from shardwise.run.runtime.train.lines import StepLine  # noqa: E402
from shardwise.run.runtime.train.optimizer import OptimizerSettings  # noqa: E402
from shardwise.run.runtime.train.rates import rate_at  # noqa: E402
from shardwise.run.runtime.train.task import TrainingSettings  # noqa: E402


def test_rate_rises_and_falls() -> None:
    settings = TrainingSettings(steps=100, rate=1.0, warmup=10, decay="cosine")
    rates = [rate_at(settings, step) for step in range(100)]
    assert rates[:10] == pytest.approx([0.1 * n for n in range(1, 11)])
    assert rates[10] == pytest.approx(1.0)
    assert all(a > b for a, b in pairwise(rates[10:]))
    assert 0.1 < rates[-1] < 0.11


def test_constant_rate() -> None:
    assert {rate_at(TrainingSettings(steps=5, rate=0.3), step) for step in range(5)} == {0.3}


def test_linear_and_stable_rates() -> None:
    linear = [rate_at(TrainingSettings(steps=10, rate=1.0, decay="linear", floor=0.0), step) for step in range(10)]
    assert linear == pytest.approx([1.0 - 0.1 * n for n in range(10)])
    settings = TrainingSettings(steps=20, rate=1.0, warmup=2, decay="wsd", decay_steps=5, floor=0.5)
    stable = [rate_at(settings, step) for step in range(20)]
    assert stable[0] == 0.5
    assert set(stable[1:16]) == {1.0}
    assert stable[16:] == pytest.approx([0.9, 0.8, 0.7, 0.6])
    assert rate_at(TrainingSettings(steps=100, rate=1.0, decay="wsd"), 90) == 1.0
    assert rate_at(TrainingSettings(steps=100, rate=1.0, decay="wsd"), 91) < 1.0


@pytest.mark.parametrize(
    ("field", "value", "cure"),
    [
        ("steps", 0, "1 or more"), ("rate", -1.0, "1e-3"), ("rate", float("nan"), "1e-3"), ("warmup", -1, "0 or more"),
        ("decay", "cubic", "cosine"), ("floor", 2.0, "0 to 1"), ("decay_steps", 11, "0 to 10"),
        ("eval_every", -1, "0 or more"), ("eval_steps", 0, "1 or more"), ("every", -1, "0 or more"),
        ("timeout_s", 0.0, "seconds"),
    ],
)  # fmt: skip
def test_bad_settings_are_named(field: str, value: object, cure: str) -> None:
    with pytest.raises(ValueError, match=f"{field.removesuffix('_s').replace('_', '-')}: .*; write .*{cure}"):
        TrainingSettings(**{field: value})


@pytest.mark.parametrize(
    ("more", "word"),
    [
        ({"betas": (1.0, 0.9)}, "beta1: 1.0"), ({"betas": (0.9, -0.1)}, "beta2: -0.1"), ({"epsilon": 0.0}, "epsilon"),
        ({"weight_decay": -1.0}, "weight-decay"), ({"momentum": 1.0}, "momentum"), ({"clip": -1.0}, "clip"),
        ({"decay_on": "norms"}, "decay-on: 'norms' .*all or matrices"), ({"nesterov": True}, "--optimizer sgd-m"),
    ],
)  # fmt: skip
def test_bad_optimizers_are_named(more: dict, word: str) -> None:
    with pytest.raises(ValueError, match=word):
        OptimizerSettings(**more)


def test_line_has_torchtitans_form() -> None:
    line = StepLine(
        step=3, loss=4.5, grad_norm=1.25, rate=1e-3, step_s=0.5, tokens_per_s=1234.0, tflops_per_rank=0.5, mfu=0.25,
        peak_bytes=2**30, memory_share=0.5, ranks=2,
    )  # fmt: skip
    form = (
        r"step: +3  loss: +4\.5000  grad_norm: +1\.2500  memory: +1\.00GiB\(50\.00%\)  tps: 617  tflops: 0\.50  "
        r"mfu: 25\.00%"
    )
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
