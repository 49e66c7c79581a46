"""Verbs that run a user's script with torch leave the shared temporary folder as it was."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "auto_gpt.py"
COMMANDS = (
    ("trace", str(ROOT / "examples" / "trace_vit.py"), "--on", "8xh100"),
    ("prove", str(EXAMPLE), "tp=2", "--steps", "2"),
    ("auto", str(EXAMPLE), "--on", "2xh100", "--fix", "tp=2"),
)  # fmt: skip


@pytest.mark.parametrize(
    ("words", "home"), [*((words, "a home") for words in COMMANDS), (COMMANDS[0], "no home")],
    ids=lambda given: given if isinstance(given, str) else given[0],
)  # fmt: skip
def test_nothing_is_left_in_the_temporary_folder(words, home, tmp_path):
    """Without a home to keep it in, torch's compiled code goes with the process."""
    pytest.importorskip("torch", reason="torch is not installed")
    (tmp_path / "temporary").mkdir()
    cache = tmp_path / "cache" if home == "a home" else Path(os.devnull) / "none"
    environment = {name: value for name, value in os.environ.items() if name != "TORCHINDUCTOR_CACHE_DIR"}
    environment |= {
        "TMPDIR": str(tmp_path / "temporary"),
        "XDG_CACHE_HOME": str(cache),
        "PYTHONPATH": str(ROOT / "src"),
    }
    command = [sys.executable, "-m", "shardwise", *words, "--json"]
    found = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert found.returncode in (0, 1), found.stderr
    assert list((tmp_path / "temporary").iterdir()) == []


@pytest.mark.parametrize("stated", ["", "cache", "./cache"])
def test_a_relative_cache_folder_is_not_taken(stated, monkeypatch):
    """It would lead into the folder shardwise is started in."""
    from shardwise.user_cache import user_cache

    monkeypatch.setenv("XDG_CACHE_HOME", stated)
    assert user_cache("compiled") == Path.home() / ".cache" / "shardwise" / "compiled"
