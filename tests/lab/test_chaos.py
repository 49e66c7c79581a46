"""Something goes wrong during a training in a lab: what must be said, and what must not be lost."""

import json

import pytest

from shardwise.show.cli import main
from shardwise_lab.chaos import CHAOS, chaos_named
from shardwise_lab.chaos.played import _after_restart, _line
from shardwise_lab.chaos.trained import EVERY, STEPS
from shardwise_lab.names import labs

RESUMED = "rank 1 was killed by signal 9 (SIGKILL); all ranks start again\nresumed after step 20\n"


def steps(reached: int = 25, resumed: int = 20, until: int = STEPS) -> list[dict[str, float]]:
    return [{"step": n, "loss": 1 / n} for n in [*range(1, reached + 1), *range(resumed + 1, until + 1)]]


def good(lines, said=RESUMED) -> list[bool]:
    return [check.ok for check in _after_restart(lines, said)]


def test_steps_made_again_must_be_the_same_and_none_may_be_missing():
    assert EVERY == 10
    assert good(steps()) == [True, True, True]
    other = steps()
    other[27]["loss"] += 1e-9
    assert good(other) == [True, True, False]
    assert good(steps(until=STEPS - 1)) == [True, False, True]
    # one step before the checkpoint it says, or none at all
    assert good(steps(resumed=19), RESUMED.replace("20", "19")) == [False, True, True]
    assert good(steps(), "no word of it")[0] is False


def test_a_checkpoint_that_was_being_written_is_passed_over():
    assert good(steps(reached=31, resumed=20)) == [True, True, True]
    assert good(steps(reached=41, resumed=20))[0] is False


def test_words_are_found_in_their_line():
    assert _line("a\n no sign of rank 1\nno sign of rank 2", "no sign of rank") == "no sign of rank 1"
    assert _line("a", "b") == ""


def test_an_unknown_case_is_refused_and_a_dry_run_does_nothing(capsys, tmp_path):
    with pytest.raises(ValueError, match="kill-rank"):
        chaos_named("kill-rnak")
    before = labs()
    for name in CHAOS:
        assert main(["lab", "chaos", name, "--dry-run"]) == 0
        assert len(json.loads(capsys.readouterr().out)["explained"]) == 3
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").write_text("mine")
    assert main(["lab", "chaos", "cut-link", "--keep", str(tmp_path / "full")]) == 2
    assert "not empty" in capsys.readouterr().err
    assert labs() == before


@pytest.mark.slow
@pytest.mark.usefixtures("namespaces")
@pytest.mark.parametrize("name", list(CHAOS))
def test_nothing_is_lost_and_the_doctor_names_it(name, tmp_path, capsys):
    pytest.importorskip("torch", reason="torch is not installed")
    left = tmp_path / "left"
    code = main(["lab", "chaos", name, "--keep", str(left), "--json"])
    out, err = capsys.readouterr()
    assert out, err
    found = json.loads(out)
    assert [check for check in found["checks"] if not check["ok"]] == []
    assert code == 0
    assert found["doctor"][0]["cause"] in CHAOS[name].doctor
    # what it left is a run's folder like any other
    assert main(["doctor", str(left), "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["causes"] == found["doctor"]
