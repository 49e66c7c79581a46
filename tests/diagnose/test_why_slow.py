"""What was put into traces on purpose is named first, and its share is what was put in."""

import pytest
from made_traces import Made, write

from shardwise.measured.diagnose.causes import CAUSES, Cause
from shardwise.measured.diagnose.measured_step import MeasuredStep, measured_step
from shardwise.measured.diagnose.why_slow import PREDICTED, Expected, WhySlow, expected_parts, why_step
from shardwise.programs.importers.run_files import read_run
from shardwise.spec.policy import Policy
from shardwise.step.estimate.time import PARTS

DATA_PARALLEL = Policy(dp=4, zero=1)


def measured(made: Made, folder, policy: Policy | None = DATA_PARALLEL, only: tuple[int, ...] = ()) -> MeasuredStep:
    return measured_step(read_run(write(made, folder, only)).traces, policy, None if made.marked else made.steps)


def why(made: Made, folder, **more) -> WhySlow:
    return why_step(measured(made, folder, **more), None)


INJECTED = [
    ("grad_comm", Made(reduce=40.0, hidden=0.0), 40.0),
    ("host", Made(gaps=30.0, reduce=2.0, hidden=2.0), 30.0),
    ("data", Made(data=25.0), 25.0),
    ("checkpoint", Made(checkpoint=60.0), 60.0),
    ("copy", Made(copies=35.0), 35.0),
    ("straggler", Made(factor={2: 1.5}), 40.0),
]


@pytest.mark.parametrize(("code", "made", "ms"), INJECTED, ids=[case[0] for case in INJECTED])
def test_the_cause_is_named_first_with_its_share(tmp_path, code, made, ms):
    found = why(made, tmp_path)
    first = found.causes[0]
    assert first.code == code
    assert found.step_s == pytest.approx(made.step_ms * 1e-3)
    assert found.lost_s(first) == pytest.approx(ms * 1e-3, rel=0.03)
    assert sum(cause.seconds for cause in found.causes) == pytest.approx(found.step_s, rel=1e-6)


@pytest.mark.parametrize("code", ["grad_comm", "host", "data", "checkpoint"])
def test_one_rank_tells_the_same_of_what_all_do(tmp_path, code):
    made = next(made for each, made, _ in INJECTED if each == code)
    found = why(made, tmp_path, only=(1,))
    assert found.causes[0].code == code
    assert found.causes[0].seconds == pytest.approx(
        next(ms for each, _, ms in INJECTED if each == code) * 1e-3, rel=0.03
    )


def test_a_sound_step_loses_nothing(tmp_path):
    found = why(Made(), tmp_path)
    assert sum(found.lost_s(cause) for cause in found.causes) < 0.01 * found.step_s


def test_the_slow_rank_is_named_with_the_reason(tmp_path):
    found = measured(Made(factor={2: 1.5}), tmp_path)
    assert found.slow_rank == "rank 2"
    evidence = next(cause.evidence for cause in found.causes if cause.code == "straggler")
    assert "100%" in evidence
    assert "kernels take 1.50 times" in evidence


def test_a_rank_whose_batch_comes_late(tmp_path):
    found = measured(Made(late_data={3: 30.0}), tmp_path)
    assert found.slow_rank == "rank 3"
    straggler = next(cause for cause in found.causes if cause.code == "straggler")
    assert straggler.seconds == pytest.approx(0.030, rel=0.05)
    assert "waits for its batches" in straggler.evidence


def test_clocks_that_differ_change_nothing(tmp_path):
    found = measured(Made(factor={1: 1.4}, skew={0: 0.0, 1: 3.0, 2: -7.5, 3: 0.01}), tmp_path)
    assert found.slow_rank == "rank 1"
    straggler = next(cause for cause in found.causes if cause.code == "straggler")
    assert straggler.seconds == pytest.approx(0.032, rel=0.05)


def test_without_several_ranks_it_is_said_that_waiting_cannot_be_told(tmp_path):
    found = measured(Made(factor={2: 1.5}), tmp_path, only=(0,))
    assert found.slow_rank == ""
    assert any("several ranks" in note for note in found.notes)
    assert {cause.code for cause in found.causes} >= {"grad_comm"}


def test_a_trace_without_marks_takes_the_number_of_steps(tmp_path):
    made = Made(marked=False, reduce=40.0, hidden=0.0)
    found = measured(made, tmp_path)
    assert found.step_s == pytest.approx(made.step_ms * 1e-3, rel=0.02)
    without = measured_step(read_run(write(made, tmp_path)).traces, DATA_PARALLEL)
    assert any("--steps" in note for note in without.notes)


def test_an_axis_nobody_knows_is_said_to_be_unknown(tmp_path):
    found = why(Made(reduce=40.0, hidden=0.0), tmp_path, policy=None)
    assert found.causes[0].code == "comm"
    named = why(Made(reduce=40.0, hidden=0.0, described="TENSOR_MODEL_PARALLEL_GROUP"), tmp_path, policy=None)
    assert named.causes[0].code == "tp_comm"


def expected_of(made: Made, **parts: float) -> Expected:
    told = {"compute": made.compute * 1e-3, **parts}
    step = sum(told.values())
    return Expected(step, step * 0.9, step * 1.1, made.compute * 0.5e-3, told)


def test_with_a_prediction_what_lies_beyond_it_is_lost(tmp_path):
    made = Made(reduce=40.0, hidden=0.0, gaps=10.0)
    found = why_step(measured(made, tmp_path), expected_of(made, grad_comm=0.035, host=0.002))
    assert [cause.code for cause in found.causes[:2]] == ["host", "grad_comm"]
    assert found.lost_s(found.causes[0]) == pytest.approx(0.008, rel=0.05)
    assert found.slower == pytest.approx(130 / 117 - 1, rel=0.01)


def test_the_fall_ends_at_the_measured_step(tmp_path):
    made = Made(reduce=40.0, hidden=0.0, gaps=10.0)
    step = measured(made, tmp_path)
    for expected in (None, expected_of(made, grad_comm=0.035, host=0.002, bubble=0.004)):
        found = why_step(step, expected)
        assert found.fall[-1].total_s == pytest.approx(found.step_s)
        assert sum(each.seconds for each in found.fall) == pytest.approx(found.step_s)


def test_every_part_of_an_estimate_has_its_cause():
    assert set(PREDICTED) == set(PARTS)
    assert set(PREDICTED.values()) <= set(CAUSES)
    axes = {f"{axis}_comm": 1 for axis in ("tp", "cp", "ep", "fsdp", "grad", "param")}
    told = expected_parts(dict.fromkeys(PARTS, 1.0))
    assert told == pytest.approx({"compute": 4, "bubble": 2, "host": 2, "copy": 1} | axes)


def test_what_is_predicted_and_not_seen_is_a_gain(tmp_path):
    made = Made()
    found = why_step(measured(made, tmp_path), expected_of(made, tp_comm=0.01))
    unseen = next(cause for cause in found.causes if cause.code == "tp_comm")
    assert isinstance(unseen, Cause)
    assert found.lost_s(unseen) == pytest.approx(-0.01)
