"""Ctrl-C in any verb: it stops at once with 130, says so, and shows what it has."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from shardwise.show.cli import main
from shardwise.show.cli._interrupts import CLEAN_UP_S, HAND_OVER_S

ROOT = Path(__file__).resolve().parents[2]
SLACK_S = 4.0
"""a shared machine may keep a process waiting; what ran on took 11 to 34 s"""
LONG = {
    "plan": ["plan", "gpt-3-175b", "--on", "dgx-h100:4096", "--fix", "offload!=none"],
    "pareto": ["plan", "llama-3-70b", "--on", "dgx-h100:1024", "--pareto"],
    "search": ["search", "llama-3-70b", "--on", "dgx-h100:64", "--tp", "8", "--pp", "8", "--compare", "--budget",
               "20000000"],
    "sweep": ["sweep", "gpt-3-175b", "--on", "dgx-h100", "--over", "gpus=1024:16384", "--fix", "offload!=none",
              "--jobs", "2"],
    "validate": ["validate", "--data", "src/shardwise/catalog/measured/published.csv"],
}  # fmt: skip


@pytest.mark.parametrize("words", LONG.values(), ids=LONG)
def test_ctrl_c_ends_it_at_once(words, tmp_path):
    variables = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "TMPDIR": str(tmp_path)}
    started = subprocess.Popen(
        [sys.executable, "-m", "shardwise", *words], cwd=ROOT, env=variables, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True, start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )  # fmt: skip
    time.sleep(2.5)
    assert started.poll() is None, "over before it could be interrupted"
    begun = time.monotonic()
    os.killpg(started.pid, signal.SIGINT)  # as a terminal does: every process of the group
    _, told = started.communicate(timeout=60)
    assert time.monotonic() - begun < HAND_OVER_S + CLEAN_UP_S + SLACK_S
    assert (started.returncode, told) == (130, "interrupted\n")
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def ctrl_c_interrupts():
    """A shell starts its background jobs with Ctrl-C ignored; here it is to be heard."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def interrupting(function, count):
    """The function, with Ctrl-C when it is called for the count-th time."""
    calls = []

    def wrapped(*arguments, **named):
        calls.append(None)
        if len(calls) == count:
            signal.raise_signal(signal.SIGINT)
        return function(*arguments, **named)

    return wrapped


@pytest.mark.usefixtures("ctrl_c_interrupts")
@pytest.mark.parametrize(
    ("words", "inner", "kept"),
    [
        (["size", "llama-3-8b", "--tokens", "1T", "--max-gpus", "64"], "shardwise.question.question.scan", "sizes"),
        (
            ["size", "llama-3-8b", "--on", "dgx-h100:128", "--tokens", "1T", "--within", "12 d"],
            "shardwise.answers._sizes.scan",
            "sizes",
        ),
        (["size", "--max", "batch", "llama-3-8b", "--on", "8xh100"], "shardwise.question.question.scan", "tried"),
        (["catalog", "layouts", "megatron-2021"], "shardwise.show.cli.layouts.judge", "layouts"),
    ],
    ids=["size", "size between", "max", "layouts"],
)
def test_what_was_done_is_shown(words, inner, kept, monkeypatch, capsys):
    module, name = inner.rsplit(".", 1)
    original = getattr(__import__(module, fromlist=[name]), name)
    monkeypatch.setattr(inner, interrupting(original, 3))
    assert main([*words, "--json"]) == 130
    shown = capsys.readouterr()
    found = msgspec.json.decode(shown.out)
    assert len(found[kept]) == 2
    assert any(note.startswith("interrupted: ") for note in found["notes"])
    assert shown.err.splitlines()[-1] == "interrupted"  # a slow machine tells how far it is before


@pytest.mark.usefixtures("ctrl_c_interrupts")
def test_a_scan_that_had_found_nothing_claims_nothing(monkeypatch, capsys):
    monkeypatch.setattr("shardwise.plan.scanning.estimate", interrupting(lambda *_, **__: None, 1))
    assert main(["plan", "llama-3-8b", "--on", "8xh100"]) == 130
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == ("", "interrupted\n")
