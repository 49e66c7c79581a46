"""`learn`: runs of yours, kept in a profile, correct steps and narrow their band; what contradicts them is left out."""

import json
from math import log

import msgspec
import pytest
from foreign_files import MEGATRON

from shardwise.cost.calibrate.profile import LearnedRun, Profile, profile_of
from shardwise.cost.calibrate.profile_toml import to_toml
from shardwise.measured.learn import contradicts, measure_next, with_runs
from shardwise.show.cli import main
from shardwise.spec.arch import model_of
from shardwise.spec.job import Job
from shardwise.spec.load import cluster_of
from shardwise.spec.policy import Policies, Policy
from shardwise.spec.software import stack_of
from shardwise.step.estimate.causes import causes_of
from shardwise.step.estimate.closed_form import estimate, floor_times
from shardwise.step.estimate.learned import job_of, learned_band, learned_run, posterior_of
from shardwise.step.estimate.time import work_alone
from shardwise.work.case import case_of

MODEL = ["--model", "llama-3-8b", "--on", "8xh100", "--zero", "3", "--global-batch", "64"]
ASK = ["estimate", "llama-3-8b", "--on", "8xh100", "--zero", "3", "--global-batch", "64", "--json"]
SLOWER = 1.3
LAYOUTS = (Policy(dp=8, zero=3), Policy(dp=4, tp=2, zero=1), Policy(dp=2, tp=4, zero=1), Policy(dp=4, pp=2, zero=1))


def plain(profile=None):
    return case_of(
        model_of("llama-3-8b"), cluster_of("8xh100"), Job(seq=8192, global_batch=64), stack_of("megatron-core"), profile
    )


def runs_of(layouts, slower=SLOWER):
    case, found = plain(), []
    for place, policy in enumerate(layouts):
        one = estimate(case, Policies.of([policy]))
        seconds = float(one.times.step_s[0]) * slower
        found.append(learned_run(case, one.work, one.times, f"run {place}", seconds, None))
    return tuple(found)


@pytest.fixture
def slow():
    return Profile(name="mine", device="h100", runs=runs_of(LAYOUTS[:3]))


def test_steps_of_runs_and_of_their_like_take_what_was_measured(slow):
    before, after = (estimate(plain(profile), Policies.of(LAYOUTS)).times for profile in (None, slow))
    ratio = after.step_s / before.step_s
    assert (ratio > 1.15).all()
    assert (ratio < SLOWER + 0.05).all()
    assert sum(after.parts.values()) == pytest.approx(after.step_s)


def test_the_band_narrows_most_near_the_runs(slow):
    """Of the spread that a blind step has, less is left at a measured layout than where another part decides."""
    case, left = plain(slow), []
    for policy in (LAYOUTS[0], Policy(dp=1, tp=1, pp=8, micro_batch=8)):
        found = estimate(case, Policies.of([policy]))
        band = learned_band(case, found.work, found.times)
        assert "learned from 3 runs" in band.evidence
        causes = causes_of(case, found.work, found.times, band.missing)
        blind = posterior_of(()).at(causes, job_of(case))
        left.append(log((1 + band.high) / (1 + band.low)) / float(blind.high[0] - blind.low[0]))
    assert left[0] < left[1] < 1.0
    assert left[0] < 0.7
    assert learned_band(plain(), found.work, found.times) is None


def test_no_setting_undercuts_the_floor_of_its_frame(slow):
    for runs in (slow.runs, runs_of(LAYOUTS[:3], 0.7)):
        case = plain(msgspec.structs.replace(slow, runs=runs))
        floor = work_alone(floor_times(case, Policies.of([Policy(dp=8)])))[0]
        every = [Policy(dp=8, zero=zero, recompute=again) for zero in (0, 1, 2, 3) for again in ("none", "full")]
        assert (estimate(case, Policies.of(every)).times.step_s >= floor).all()


def test_runs_of_another_program_say_nothing(slow):
    other = msgspec.structs.replace(
        slow, runs=tuple(msgspec.structs.replace(run, stack="nanotron") for run in slow.runs)
    )
    before, after = (estimate(plain(profile), Policies.of(LAYOUTS)).times.step_s for profile in (None, other))
    assert (before == after).all()


def test_a_run_that_contradicts_the_others_is_left_out(slow):
    far = runs_of(LAYOUTS[3:], slower=6.0)[0]
    assert contradicts(far, slow.runs)
    assert not contradicts(far, slow.runs[:1])
    assert not contradicts(runs_of(LAYOUTS[3:])[0], slow.runs)
    found, refused = with_runs(slow, [far])
    assert found == slow
    assert refused == [far]


def test_the_same_run_again_replaces_itself_and_the_file_keeps_all(slow, tmp_path):
    faster = msgspec.structs.replace(slow.runs[0], measured_s=slow.runs[0].measured_s * 0.98)
    found, _ = with_runs(slow, [faster])
    assert len(found.runs) == 3
    assert faster in found.runs
    (tmp_path / "mine.toml").write_text(to_toml(slow))
    kept = profile_of(tmp_path / "mine.toml")
    assert [run.causes for run in kept.runs] == [pytest.approx(run.causes, rel=1e-4) for run in slow.runs]
    assert measure_next(slow.runs)


def test_a_log_is_learned_from_composes_and_is_forgotten(tmp_path, capsys):
    out = str(tmp_path / "mine.toml")
    for name in ("a.log", "b.log"):
        (tmp_path / name).write_text(MEGATRON)
    assert main(["learn", str(tmp_path / "a.log"), *MODEL, "--out", out, "--json"]) == 0
    first = json.loads(capsys.readouterr().out)
    assert [run["source"] for run in first["runs"]] == ["a.log"]
    assert first["causes"]
    assert first["next"]
    assert main(["learn", str(tmp_path / "b.log"), *MODEL, "--profile", out, "--out", out]) == 0
    assert [run.source for run in profile_of(tmp_path / "mine.toml").runs] == ["a.log", "b.log"]
    capsys.readouterr()
    steps = {}
    for name, more in (("blind", []), ("learned", ["--profile", out])):
        main([*ASK, *more])
        steps[name] = json.loads(capsys.readouterr().out)
    measured = first["runs"][0]["measured_s"]
    assert abs(steps["learned"]["step_s"] / measured - 1) < abs(steps["blind"]["step_s"] / measured - 1)
    assert "learned from 2 runs" in steps["learned"]["error_basis"]
    again = ["learn", str(tmp_path / "b.log"), *MODEL, "--profile", out, "--out", out, "--forget"]
    assert main([*again, "a.log"]) == 0
    assert [run.source for run in profile_of(tmp_path / "mine.toml").runs] == ["b.log"]
    assert main([*again, "c.log"]) == 2
    assert "forget: " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "field"),
    [
        ([], "on"),
        (["--on", "8xh100"], "config"),
        ([*MODEL, "--tp", "3"], "policy"),
        (["--model", "lama", "--on", "8xh100"], "model"),
    ],
)
def test_what_is_missing_is_named(tmp_path, capsys, words, field):
    log = tmp_path / "a.log"
    log.write_text(MEGATRON)
    out = tmp_path / "mine.toml"
    assert main(["learn", str(log), *words, "--out", str(out)]) == 2
    assert field in capsys.readouterr().err
    assert not out.exists()


def test_a_run_says_what_it_is():
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(
            {"source": "a", "job": "b", "stack": "c", "measured_s": -1.0, "predicted_s": 1.0, "causes": {}}, LearnedRun
        )


SCRIPT = """#!/bin/bash
torchrun --nproc_per_node 8 pretrain_gpt.py --tensor-model-parallel-size 2 --num-layers 32 --hidden-size 4096 \\
  --ffn-hidden-size 14336 --num-attention-heads 32 --group-query-attention --num-query-groups 8 --seq-length 8192 \\
  --micro-batch-size 1 --global-batch-size 64 --bf16 --swiglu --use-distributed-optimizer --sequence-parallel \\
  --recompute-granularity full --recompute-method uniform --recompute-num-layers 1 --use-flash-attn
"""


@pytest.fixture
def launched(tmp_path):
    """A launch file and a log of it: options of `check`, and of `why` and `watch`."""
    (tmp_path / "run.sh").write_text(SCRIPT)
    lines = [
        f" iteration {step}/ 100 | consumed samples: {64 * step} | elapsed time per iteration (ms): {11000 + step}.0 |"
        for step in range(1, 20)
    ]
    (tmp_path / "a.log").write_text("\n".join(lines))
    cluster = ["--model", "llama-3-8b", "--on", "8xh100", "--json"]
    return tmp_path / "run.sh", tmp_path / "a.log", cluster


def test_check_with_a_log_starts_from_what_was_measured(launched, capsys):
    script, log_file, cluster = launched
    assert main(["check", str(script), *cluster]) == 0
    blind = json.loads(capsys.readouterr().out)
    assert main(["check", str(script), *cluster, "--log", str(log_file)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert abs(found["step_s"] / 11.01 - 1) < 0.5 * abs(blind["step_s"] / 11.01 - 1)
    assert any("a.log: 11.01 s a step" in note for note in found["notes"])
    assert "learned from 1 run" in found["estimate"]["error_basis"]
    for before, after in zip(blind["improvements"], found["improvements"], strict=True):
        assert before["step_change_range"][0] < before["step_change"] < before["step_change_range"][1]
        assert after["step_change_range"][0] < after["step_change"] < after["step_change_range"][1]
    assert main(["check", str(script), "--log", str(log_file)]) == 2
    assert "log: " in capsys.readouterr().err


def test_why_and_watch_deal_the_difference_out_to_its_likely_causes(launched, tmp_path, capsys):
    script, log_file, cluster = launched
    line = [str(log_file), "--config", str(script), *cluster]
    main(["why", *line])
    why = json.loads(capsys.readouterr().out)["logs"][0]
    out = tmp_path / "seen.toml"
    main(["watch", *line, "--once", "--learned", str(out)])
    watched = json.loads(capsys.readouterr().out)
    for likely in (why["likely"], watched["likely"]):
        seconds = [each["seconds"] for each in likely]
        assert seconds == sorted(seconds, key=abs, reverse=True)
        # the listed ones are most of the difference, and none is sure
        assert sum(seconds) == pytest.approx(why["step_s"] - why["predicted_step_s"], rel=0.5)
        assert all(each["spread_s"] > 0 for each in likely)
    assert [run.source for run in profile_of(out).runs] == ["a.log"]
    assert main(["watch", str(log_file), "--once", "--learned", str(tmp_path / "b.toml")]) == 2
    assert "learned: " in capsys.readouterr().err
