"""What the shell completes, asked of the shell itself."""

import shutil
import subprocess
import sys

import pytest

from shardwise.cli._verbs import VERBS


def script(shell: str) -> str:
    done = subprocess.run([sys.executable, "-m", "shardwise", "completion", shell], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def completed(words: list[str]) -> list[str]:
    """What bash offers after these words, the last of which is begun."""
    asked = " ".join(f"'{word}'" for word in words)
    ask = f"COMP_WORDS=({asked}); COMP_CWORD={len(words) - 1}; _shardwise; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    done = subprocess.run(["bash", "-c", script("bash") + "\n" + ask], capture_output=True, text=True)
    return done.stdout.split()


def test_bash_completes_verbs_and_options():
    assert set(completed(["shardwise", ""])) >= set(VERBS)
    assert completed(["shardwise", "est"]) == ["estimate"]
    assert "--global-batch" in completed(["shardwise", "plan", "--glo"])


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_read_their_script(shell):
    text = script(shell)
    assert all(verb in text for verb in VERBS)
    if shutil.which(shell):
        assert subprocess.run([shell, "-n"], input=text, text=True).returncode == 0


def test_an_unknown_shell_is_refused():
    done = subprocess.run([sys.executable, "-m", "shardwise", "completion", "tcsh"], capture_output=True, text=True)
    assert done.returncode == 2
    assert "tcsh" in done.stderr
    assert "bash" in done.stderr
