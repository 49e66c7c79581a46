"""What is done to a run's steps on purpose is found, named first, and its share is what was done."""

import random
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "importers"))
from log_samples import log_of

from shardwise.measured.diagnose.pace import Pace, pace_of, series_of
from shardwise.programs.importers.logs import parse_log
from shardwise.programs.importers.step_table import parse_table

LEVEL = 5.0
COUNT = 300


def steady(seed: int = 7) -> list[float]:
    noise = random.Random(seed)
    return [LEVEL * (1 + noise.gauss(0, 0.005)) for _ in range(COUNT)]


def pace(seconds: list[float], **more: object) -> Pace:
    log = parse_log(log_of("megatron", seconds, **more))
    assert log is not None
    return pace_of(series_of(log), log)


def test_a_steady_run_has_nothing_to_say():
    found = pace(steady())
    assert sum(cause.seconds for cause in found.causes) < 0.01 * LEVEL
    assert (found.dropped, found.restarts) == (0, 0)
    assert found.spread == pytest.approx(0.005, rel=0.3)
    assert found.dropped_why.startswith("none")


@pytest.mark.parametrize(("said", "code"), [
    ("saving checkpoint at iteration 7 to there", "checkpoint"), ("validation loss at iteration 7 | 2.1", "evaluation"),
    ("", "stalls"),
])  # fmt: skip
def test_pauses_between_the_lines_at_a_fixed_distance(said, code):
    pauses = dict.fromkeys(range(50, COUNT + 1, 50), 30.0)
    found = pace(steady(), pauses=pauses, said=said)
    first = found.causes[0]
    assert (first.code, first.where) == (code, "every 50 steps")
    assert first.seconds == pytest.approx(30 * len(pauses) / COUNT, rel=0.05)
    assert any("between the lines" in note for note in found.notes)


def test_slow_steps_at_a_fixed_distance():
    seconds = steady()
    for step in range(20, COUNT + 1, 20):
        seconds[step - 1] += 8.0
    first = pace(seconds).causes[0]
    assert (first.code, first.where) == ("stalls", "every 20 steps")
    assert first.seconds == pytest.approx(8.0 / 20, rel=0.03)


def test_two_distances_at_once():
    seconds = steady()
    for step in range(25, COUNT + 1, 25):
        seconds[step - 1] += 3.0
    for step in range(40, COUNT + 1, 40):
        seconds[step - 1] += 9.0
    found = [cause for cause in pace(seconds).causes if cause.code == "stalls"]
    assert {cause.where for cause in found} == {"every 25 steps", "every 40 steps"}


def test_single_slow_steps():
    seconds = steady()
    for step in (31, 87, 88, 203):
        seconds[step] *= 6
    first = pace(seconds).causes[0]
    assert first.code == "spikes"
    assert first.seconds == pytest.approx(4 * 5 * LEVEL / COUNT, rel=0.05)


def test_a_level_that_rises_at_one_moment():
    seconds = [each * (1.2 if n >= 120 else 1) for n, each in enumerate(steady())]
    first = pace(seconds).causes[0]
    assert first.code == "shift"
    assert first.seconds == pytest.approx(0.2 * LEVEL * 180 / COUNT, rel=0.05)
    assert int(first.where.split()[2].replace(",", "")) == pytest.approx(121, abs=3)


def test_a_level_that_rises_all_the_time():
    seconds = [each * (1 + 0.4 * n / COUNT) for n, each in enumerate(steady())]
    first = pace(seconds).causes[0]
    assert first.code == "drift"
    assert first.seconds == pytest.approx(0.2 * LEVEL, rel=0.1)


def test_the_first_steps_are_left_out_with_a_reason():
    found = pace([60.0, 20.0, *steady()])
    assert found.dropped == 2
    assert "12 times the level" in found.dropped_why
    assert found.mean_s == pytest.approx(LEVEL, rel=0.01)


def test_work_done_again_after_a_restart():
    text = log_of("maxtext", steady()[:200])
    again = log_of("maxtext", steady(3))
    log = parse_log(text + "".join(line + "\n" for line in again.splitlines() if _step(line) > 150))
    assert log is not None
    found = pace_of(series_of(log), log)
    assert found.restarts == 1
    restart = next(cause for cause in found.causes if cause.code == "restart")
    assert restart.seconds == pytest.approx(LEVEL * 50 / COUNT, rel=0.03)


def _step(line: str) -> int:
    return int(line.partition("step: ")[2].partition(",")[0]) if "completed step" in line else 0


def test_causes_add_up_to_what_the_mean_takes_above_the_level():
    seconds = [each * (1.2 if n >= 120 else 1) for n, each in enumerate(steady())]
    for step in range(20, COUNT + 1, 20):
        seconds[step - 1] += 8.0
    found = pace(seconds)
    told = sum(cause.seconds for cause in found.causes)
    assert told == pytest.approx(found.mean_s - found.level_s, abs=0.003 * LEVEL)


def test_few_steps_are_no_reason_to_fail():
    for count in (1, 2, 3, 9):
        assert pace(steady()[:count]).mean_s == pytest.approx(LEVEL, rel=0.02)


def test_what_a_table_says_of_data_and_checkpoints():
    rows = ["step,step_time,time_metrics/data_loading(s),timing_s/save_checkpoint"]
    for number, seconds in enumerate(steady(), 1):
        saves = number % 30 == 0
        rows.append(f"{number},{seconds + 10 * saves},1.5,{10 if saves else ''}")
    log = parse_table("\n".join(rows))
    assert log is not None
    found = pace_of(series_of(log), log)
    assert [cause.code for cause in found.causes[:2]] == ["data", "checkpoint"]
    assert found.causes[0].seconds == pytest.approx(1.5)
    assert found.causes[1].seconds == pytest.approx(10 / 30, rel=0.03)
    assert found.level_s == pytest.approx(LEVEL - 1.5, rel=0.01)
