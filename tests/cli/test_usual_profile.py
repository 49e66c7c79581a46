"""A profile in a usual place is used without a word on the command line, named, and left out on request."""

import json
import sys

import pytest

from shardwise.cost.calibrate.profile import LearnedRun, Profile
from shardwise.cost.calibrate.profile_toml import to_toml
from shardwise.show.cli import main
from shardwise.usual_places import PLACES

LINE = ["estimate", "llama-3-8b", "--on", "8xh100", "--zero", "3", "--json"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Two places: the working folder and the user's own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "own"))
    (tmp_path / "own" / "shardwise").mkdir(parents=True)
    token = PLACES.set(())
    yield tmp_path
    PLACES.reset(token)


def profile(name: str, device: str = "h100", slower: float = 1.5) -> str:
    run = LearnedRun(source=name, job=f"llama-3-8b on {device}", stack="megatron-core", measured_s=slower,
                     predicted_s=1.0, causes={"level": 1.0, "compute": 1.0})  # fmt: skip
    return to_toml(Profile(name=name, device=device, runs=(run,)))


def asked(monkeypatch, capsys, *more: str) -> dict:
    monkeypatch.setattr(sys, "argv", ["shardwise", *LINE, *more])
    assert main() == 0
    return json.loads(capsys.readouterr().out)


def test_the_folder_comes_before_the_user_and_both_are_named(folder, monkeypatch, capsys):
    blind = asked(monkeypatch, capsys)
    own = folder / "own" / "shardwise" / "profile.toml"
    own.write_text(profile("own"))
    found = asked(monkeypatch, capsys)
    assert found["step_s"] > 1.1 * blind["step_s"]
    assert any(str(own) in note and "--no-profile" in note for note in found["notes"])
    (folder / "shardwise.toml").write_text(profile("here", slower=0.5))
    here = asked(monkeypatch, capsys)
    assert here["step_s"] < blind["step_s"]
    assert any("shardwise.toml" in note for note in here["notes"])
    assert any("to narrow the band" in note for note in here["notes"])
    assert asked(monkeypatch, capsys, "--no-profile")["step_s"] == blind["step_s"]


def test_one_of_another_gpu_is_passed_over_and_a_damaged_one_named(folder, monkeypatch, capsys):
    blind = asked(monkeypatch, capsys)
    (folder / "shardwise.toml").write_text(profile("here", "a100"))
    assert asked(monkeypatch, capsys)["step_s"] == blind["step_s"]
    (folder / "shardwise.toml").write_text("x")
    monkeypatch.setattr(sys, "argv", ["shardwise", *LINE])
    assert main() == 2
    assert "--no-profile" in capsys.readouterr().err


def test_python_and_tests_look_nowhere(folder, capsys):
    (folder / "shardwise.toml").write_text(profile("here"))
    assert main(LINE) == 0
    assert not any("shardwise.toml" in note for note in json.loads(capsys.readouterr().out)["notes"])


def test_both_options_contradict(folder, capsys):
    (folder / "a.toml").write_text(profile("a"))
    assert main([*LINE, "--profile", "a.toml", "--no-profile"]) == 2
    assert "no-profile" in capsys.readouterr().err
