"""benchmarks/hostile.py, in short: the files that are quick to make, and one byte of every kind of file."""

import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))
if sys.platform != "linux":
    pytest.skip("measures with wait4", allow_module_level=True)
import hostile
from _hostile_runs import RunOutcome
from _hostile_settings import TRAIN


@pytest.fixture
def bench(tmp_path) -> hostile.HostileBench:
    return hostile.HostileBench(tmp_path, seed=5)


def broken(bench: hostile.HostileBench) -> dict[str, int]:
    found = vars(bench.tally)
    return {name: found[name] for name in ("hangs", "over_memory", "executed", "tracebacks") if found[name]}


def test_hostile_files_are_refused(bench, capsys) -> None:
    files = [file for file in (*hostile.RUN_FILES, *hostile.SETTINGS) if not file.large and file.line != TRAIN]
    bench.hostile(files[::5], forked=True)
    assert broken(bench) == {}, capsys.readouterr().err
    assert bench.tally.files > 15


def test_one_wrong_byte_is_an_answer_or_a_refusal(bench, capsys) -> None:
    bench.damaged(1)
    assert broken(bench) == {}, capsys.readouterr().err
    assert bench.tally.files > 50


@pytest.mark.parametrize(("outcome", "wanted"), [
    (RunOutcome(-9, 60.0, 0, b"", b""), "hangs"), (RunOutcome(70, 1.0, 0, b"", b""), "tracebacks"),
    (RunOutcome(1, 1.0, 0, b"", b"Traceback (most"), "tracebacks"), (RunOutcome(-11, 1.0, 0, b"", b""), "tracebacks"),
    (RunOutcome(2, 1.0, 3 * 2**30, b"", b""), "over_memory"),
])  # fmt: skip
def test_what_breaks_is_counted_and_named(bench, capsys, outcome, wanted) -> None:
    bench.judge("the file", outcome)
    assert broken(bench) == {wanted: 1}
    assert f"{wanted}: the file" in capsys.readouterr().err


def test_code_that_ran_is_counted_and_named(bench, tmp_path, capsys) -> None:
    (tmp_path / "asked" / "executed-numpy").mkdir(parents=True)
    bench.count_executed("a folder", tmp_path / "asked")
    assert broken(bench) == {"executed": 1}
    assert "executed: a folder: executed-numpy" in capsys.readouterr().err
