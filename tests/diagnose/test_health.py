"""What is put into records is named, with its rank and its beginning; what is well is left alone."""

import pytest
from made_records import MadeRun

from shardwise.measured.diagnose.causes import CAUSES, CURES, Cause
from shardwise.measured.diagnose.health.alarms import LOWERED, Alarms
from shardwise.measured.diagnose.health.found import health_of
from shardwise.measured.diagnose.health.status import status_of
from shardwise.programs.importers.step_records import read_records, record_files

LEAK = 2.0**20


def read(made: MadeRun, folder):
    return read_records(record_files(made.write(folder)), "made")


CASES = {
    "slow rank": (MadeRun(slow={2: 1.6}), "straggler", 2, None),
    "slow rank of two": (MadeRun(ranks=2, slow={1: 1.6}, noise=0.2), "straggler", 1, None),
    "slow rank since": (MadeRun(slow={0: 1.7}, since=40), "straggler", 0, 41),
    "slow stage alone, since": (MadeRun(ranks=2, stages=2, slow={1: 2.0}, since=40), "straggler", 1, 41),
    "slow rank by its clock": (MadeRun(slow={2: 1.6}, processor=False), "straggler", 2, None),
    "slow rank by its clock, since": (MadeRun(slow={0: 1.7}, since=40, processor=False), "straggler", 0, 41),
    "slow stage alone by its clock": (
        MadeRun(ranks=2, stages=2, slow={1: 2.0}, since=40, processor=False),
        "straggler",
        1,
        41,
    ),
    "long last stage": (MadeRun(stages=2, uneven_stages=(1.0, 1.9)), "slow_stage", None, None),
    "late data on one": (MadeRun(late_data={3: 0.05}), "data", 3, None),
    "late data on all": (MadeRun(late_data=dict.fromkeys(range(4), 0.05)), "data", None, None),
    "slow network": (MadeRun(network=4.0, since=40), "slow_link", None, 41),
    "slow network beside idle processors": (
        MadeRun(network=4.0, since=40, pressure=(0.5, 0.1)),
        "slow_link",
        None,
        41,
    ),
    "slower beside as many as before": (MadeRun(everyone=1.5, since=40, pressure=(0.4, 0.4)), "shift", None, 41),
    "saving too often": (MadeRun(save_s=0.5), "checkpoint", None, None),
    "hot expert": (MadeRun(hot=0.5, since=30), "hot_expert", None, 31),
    "a leak": (MadeRun(leak={1: 2 * LEAK}), "memory_leak", 1, None),
    "a leak that slows its rank": (MadeRun(leak={1: 2 * LEAK}, slow={1: 1.6}), "memory_leak", 1, None),
    "a leak beside another slow rank": (MadeRun(leak={1: 2 * LEAK}, slow={2: 1.6}), "memory_leak", 1, None),
    "a leak beside checkpoints": (MadeRun(leak={1: 2 * LEAK}, save_s=0.5), "memory_leak", 1, None),
    "slower, and nothing says why": (MadeRun(everyone=1.5, since=40), "shift", None, 41),
    "above the band": (MadeRun(predicted=(0.05, 0.045, 0.06)), "level", None, None),
}


@pytest.mark.parametrize("name", CASES)
def test_named(name, tmp_path):
    made, code, rank, since = CASES[name]
    causes = health_of(read(made, tmp_path)).causes
    assert causes, name
    assert (causes[0].code, causes[0].rank) == (code, rank), causes
    assert causes[0].evidence
    if since is not None:
        assert causes[0].since is not None
        assert abs(causes[0].since - since) <= 3, causes[0]


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("noise", [0.02, 0.3])
def test_healthy_ranks_are_left_alone(seed, noise, tmp_path):
    for ranks, stages in ((2, 1), (4, 1), (4, 2)):
        made = MadeRun(ranks=ranks, stages=stages, noise=noise, seed=seed, processor=seed % 2 == 0)
        found = health_of(read(made, tmp_path / f"{ranks}-{stages}"))
        assert found.causes == (), found.causes


@pytest.mark.parametrize("pressure", [(0.3, 0.6), (0.95, 0.97)])
@pytest.mark.parametrize("made", [{"everyone": 1.5}, {"network": 4.0}])
def test_a_machine_that_others_use_is_no_fault_of_the_run(made, pressure, tmp_path):
    """All is slower from a step on, and more processes than before wait for the processors, or always some do."""
    found = health_of(read(MadeRun(since=40, pressure=pressure, **made), tmp_path))
    assert found.causes == ()
    assert [remark.code for remark in found.remarks] == ["contention"]


def test_a_rank_that_stands_in_line_for_a_processor_is_no_straggler(tmp_path):
    slow = {"slow": {1: 4.0}, "since": 30}
    assert [cause.code for cause in health_of(read(MadeRun(**slow), tmp_path / "slow")).causes] == ["straggler"]
    assert health_of(read(MadeRun(**slow, queued=True), tmp_path / "queued")).causes == ()


def test_all_ranks_stand_in_line_longer(tmp_path):
    found = health_of(read(MadeRun(everyone=1.5, since=40, queued=True), tmp_path))
    assert found.causes == ()
    assert [remark.code for remark in found.remarks] == ["contention"]


def test_first_steps_are_not_judged(tmp_path):
    """A slow beginning is compilation, not a straggler."""
    made = MadeRun(slow={1: 8.0})
    rows = made.lines()
    quiet = MadeRun().lines()
    for name, lines in rows.items():
        (tmp_path / name).write_bytes(b"\n".join([*lines[:6], *quiet[name][6:]]) + b"\n")
    assert health_of(read_records(record_files(tmp_path), "")).causes == ()


def test_a_small_loss_is_not_named(tmp_path):
    assert health_of(read(MadeRun(slow={1: 1.1}), tmp_path)).causes == ()


def test_status_of_a_run(tmp_path):
    run = read(MadeRun(slow={2: 1.6}, predicted=(0.15, 0.14, 0.16), save_s=0.1), tmp_path)
    status = status_of(run, health_of(run))
    assert status.state == "finished"
    assert status.steps == status.last_step == 80
    assert status.step_s == pytest.approx(0.08 * 1.6 + 0.021, rel=0.1)
    assert status.within_band
    assert (status.slowest_rank, status.slowest_over_middle) == (2, pytest.approx(1.6, rel=0.1))
    assert status.save_share == pytest.approx(0.01 / 0.16, rel=0.2)
    assert 0.8 < status.goodput_share <= 1.0
    assert [rank.rank for rank in status.ranks] == [0, 1, 2, 3]


def test_a_run_without_an_end_falls_silent(tmp_path):
    run = read(MadeRun(ends=dict.fromkeys(range(4))), tmp_path)
    last = run.last_at_s
    assert status_of(run, health_of(run), last + 1).state == "goes on"
    assert status_of(run, health_of(run), last + 60).state == "silent"


def test_alarms_do_not_flap():
    alarms, seen = Alarms(), Cause(code="data", seconds=1.0)
    assert alarms.look([seen]) == ([], [])
    assert alarms.look([seen]) == ([seen], [])
    for _ in range(LOWERED - 1):
        assert alarms.look([]) == ([], [])
    assert alarms.look([seen]) == ([], []), "it is still up"
    for _ in range(LOWERED - 1):
        alarms.look([])
    assert alarms.look([]) == ([], [seen])
    assert alarms.count == {"data": 1}


def test_one_that_comes_and_goes_is_never_raised():
    alarms, seen = Alarms(), Cause(code="data", seconds=1.0)
    for _ in range(20):
        assert alarms.look([seen]) == ([], [])
        alarms.look([])


def test_every_cause_has_words_and_a_cure():
    assert set(CAUSES) == set(CURES)


def test_damaged_lines_are_passed_over(tmp_path):
    made = MadeRun().write(tmp_path)
    path = made / "rank-00001.jsonl"
    content = path.read_bytes()
    odd = b'{"step":1,"at_s":1e400,"step_s":-4}\n{"step": "x"}\nnot json\n\xff\xfe\n{"step":2,"at_s":1,"step_s":NaN}\n'
    path.write_bytes(content[: len(content) // 2] + b"\n" + odd)
    run = read_records(record_files(made), "")
    assert 30 < len(run.ranks[1].steps) < 60
    assert run.ranks[1].end is None
