"""`plan --measure` through `shardwise run`: two ranks of this machine, interrupted after the first trial."""

import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from shardwise.cost.calibrate.profile import profile_of
from shardwise.show.cli._interrupts import INTERRUPTED

TINY = Path(__file__).parents[2] / "docs" / "tiny-llama.json"


def words_of_processes() -> list[str]:
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found.append(entry.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        except OSError:  # it has ended meanwhile
            continue
    return found


def test_trials_run_here_and_an_interruption_keeps_them(tmp_path):
    model, learned = tmp_path / "only-of-this-test.json", tmp_path / "learned.toml"
    shutil.copy(TINY, model)
    words = ["plan", str(model), "--on", "2xh100", "--seq", "64", "--global-batch", "4", "--stack", "shardwise",
             "--fix", "pp=1", "--measure", "5", "--measure-device", "cpu", "--learned", str(learned),
             "--json"]  # fmt: skip
    with subprocess.Popen(
        [sys.executable, "-m", "shardwise", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        assert process.stdout is not None
        lines = []
        for line in process.stderr:
            lines.append(line)
            if line.startswith("trial 2 of 5: "):
                process.send_signal(signal.SIGINT)
                break
        told = json.loads(process.stdout.read())
        assert process.wait(timeout=60) == INTERRUPTED
    assert lines[0].startswith("trial 1 of 5: ")
    assert "best so far" in lines[-1]
    measure = told["measure"]
    (trial,) = measure["trials"]
    assert trial["why"] is None
    assert 0 < trial["step_s"] < 60
    assert measure["on"] == "cpu"
    assert measure["command"].endswith("--device cpu")
    assert any(note.startswith("interrupted: 1 of 5 trials") for note in measure["notes"])
    profile = profile_of(learned)
    # six digits are written; processors say nothing of an H100, so nothing of it is corrected
    assert abs(float(profile.measured["trials"][0]["step_s"]) / trial["step_s"] - 1) < 1e-5
    assert profile.runs == ()
    until = time.monotonic() + 20  # ranks see a moment later that their launcher is gone
    while (left := [each for each in words_of_processes() if str(model) in each]) and time.monotonic() < until:
        time.sleep(0.1)
    assert not left
