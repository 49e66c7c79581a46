"""What the shell completes, asked of the shell itself."""

import contextlib
import io
import shlex
import shutil
import subprocess
from functools import cache

import pytest

from shardwise.show.cli import main
from shardwise.show.cli._verbs import VERBS


@cache
def script(shell: str) -> str:
    with contextlib.redirect_stdout(io.StringIO()) as told:
        assert main(["--completion", shell]) == 0
    return told.getvalue()


def completed(*asked: list[str]) -> list[list[str]]:
    """What bash offers after each of these lists of words, the last of which is begun."""
    asks = [
        f"COMP_WORDS=({shlex.join(words)}); COMP_CWORD={len(words) - 1}; COMPREPLY=(); _shardwise; "
        'echo "${COMPREPLY[*]}"'
        for words in asked
    ]
    # on stdin: a script as long as this is no argument
    whole = "\n".join([script("bash"), *asks])
    done = subprocess.run(["bash", "-s"], input=whole, capture_output=True, text=True)
    return [line.split() for line in done.stdout.splitlines()]


def test_bash_completes_verbs_and_options():
    verbs, begun, options = completed(["shardwise", ""], ["shardwise", "est"], ["shardwise", "plan", "--glo"])
    assert set(verbs) >= set(VERBS)
    assert begun == ["estimate"]
    assert "--global-batch" in options


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_read_their_script(shell):
    text = script(shell)
    assert all(verb in text for verb in VERBS)
    if shutil.which(shell):
        assert subprocess.run([shell, "-n"], input=text, text=True).returncode == 0


def test_an_unknown_shell_is_refused(capsys):
    assert main(["--completion=tcsh"]) == 2
    told = capsys.readouterr().err
    assert "tcsh" in told
    assert "bash" in told
