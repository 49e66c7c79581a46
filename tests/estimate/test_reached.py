"""Tuned and typical step times, and the setbacks between them."""

import json

import pytest
from msgspec.structs import replace

from shardwise.show.cli import main
from shardwise.spec.arch import model_of
from shardwise.spec.job import Job
from shardwise.spec.load import cluster_from
from shardwise.spec.policy import OVERLAPS, Policies, Policy
from shardwise.spec.software import stack_of
from shardwise.step.estimate.band import band_of, tuned_band
from shardwise.step.estimate.closed_form import estimate
from shardwise.step.estimate.reached import reached_of
from shardwise.work.case import Case, case_of


def case_with(stack: str = "megatron-core", gpus: int = 64) -> Case:
    job = Job(seq=4096, global_batch=512)
    return case_of(model_of("llama-3-8b"), cluster_from("h100", gpus, 8), job, stack_of(stack))


def step(case: Case, policy: Policy) -> float:
    return float(estimate(case, Policies.of([policy])).times.step_s[0])


def test_tuned_is_the_narrow_part_of_typical() -> None:
    case = case_with()
    band, tuned, reached = band_of(case), tuned_band(case), reached_of(case, Policy(dp=64, zero=3), 10.0)
    assert band
    assert tuned
    assert reached
    assert (reached.tuned_low_s, reached.tuned_high_s) == pytest.approx((10 + 10 * tuned.low, 10 + 10 * tuned.high))
    assert (reached.typical_low_s, reached.typical_high_s) == pytest.approx((10 + 10 * band.low, 10 + 10 * band.high))
    assert reached.typical_low_s <= reached.tuned_low_s < 10 < reached.typical_s < reached.typical_high_s
    assert reached.tuned_high_s < reached.typical_high_s


def test_setbacks_are_the_steps_their_flags_give() -> None:
    case, policy = case_with(), Policy(dp=64, zero=3)
    reached = reached_of(case, policy, step(case, policy))
    assert reached
    changes = {each.name: each.change for each in reached.setbacks}
    plain = step(case, replace(policy, **dict.fromkeys(OVERLAPS, False)))
    assert changes["no overlap"] == pytest.approx(plain / step(case, policy) - 1)
    # 64 GPUs send each gradient over one NIC a node instead of eight four times as fast
    assert changes["TCP on one 100 Gb/s NIC"] > changes["no overlap"]
    # matrix units are most of such a step, and nothing else slows with the clock
    assert 0.05 < changes["clocks 10% lower"] < 1 / 0.9 - 1
    assert list(changes.values()) == sorted(changes.values(), reverse=True)


def test_a_program_nobody_tuned_has_one_band() -> None:
    assert reached_of(case_with("deepspeed"), Policy(dp=64, zero=3), 1.0) is None


def test_estimate_prints_and_returns_both(capsys: pytest.CaptureFixture[str]) -> None:
    line = ["estimate", "llama-3-8b", "--on", "8xh100", "--zero", "3"]
    assert main(line) == 0
    text = capsys.readouterr().out
    assert main([*line, "--json"]) == 0
    reached = json.loads(capsys.readouterr().out)["reached"]
    assert "\ntuned " in text
    assert "\ntypical " in text
    assert "no overlap" in text
    assert reached["tuned_high_s"] < reached["typical_high_s"]
    assert next(each["flag"] for each in reached["setbacks"]).startswith("--no-overlap-grad")
