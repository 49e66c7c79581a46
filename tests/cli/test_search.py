"""search as a user meets it."""

import json
from xml.etree import ElementTree

import pytest

from shardwise.cli import main

ONE = ["search", "llama-3-8b", "--on", "8xh100", "--pp", "8", "--seq", "8192", "--global-batch", "64"]
TWO = ["search", "llama-3-8b", "--on", "8xh100", "--mixed", "8xa100-80", "--pp", "4", "--tp", "2", "--stage-tp", "2,4",
       "--seq", "8192", "--global-batch", "64"]  # fmt: skip
BAD = [
    ([*ONE, "--method", "dq"], "did you mean 'dp'"),
    ([*ONE, "--budget", "0"], "budget"),
    ([*ONE, "--seed", "-1"], "seed"),
    ([*ONE, "--figure", "x.png"], ".svg"),
    ([*ONE, "--stage-tp", "2,x"], "stage-tp"),
    ([*ONE, "--stages-on", "4,4"], "stages-on"),
    ([*ONE, "--dp", "2"], "dp"),
    ([*TWO, "--pp", "3"], "pp"),
    ([*TWO, "--global-batch", "63"], "global-batch"),
]


def document(capsys, arguments, code=0):
    assert main([*arguments, "--json"]) == code
    found = capsys.readouterr()
    assert found.err == ""
    return json.loads(found.out)


@pytest.mark.parametrize(("arguments", "words"), BAD)
def test_bad_input_is_one_line(capsys, arguments, words):
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") == 1


def test_one_method(capsys):
    found = document(capsys, ONE)
    assert list(found["methods"]) == ["dp"]
    assert found["methods"]["dp"]["proven"]
    assert sum(found["best"]["layers"]) == 32
    assert found["best"]["step_s"] == found["optimum_s"] < found["even"]["step_s"]


def test_all_methods_on_two_kinds_of_gpu(capsys, tmp_path):
    figure = tmp_path / "search.svg"
    found = document(capsys, [*TWO, "--compare", "--budget", "3000", "--figure", str(figure)])
    assert set(found["methods"]) == {"dp", "ip", "zeroth", "rl"}
    assert any("exhaustive is left out" in note for note in found["notes"])
    for name, told in found["methods"].items():
        assert told["gap"] == pytest.approx(0, abs=1e-9) or name in ("zeroth", "rl")
        assert told["objective_s"] >= found["optimum_s"] * (1 - 1e-9)
    assert sorted(stage["on"] for stage in found["best"]["stages"]) == ["8xa100-80"] * 2 + ["8xh100"] * 2
    words = "".join(ElementTree.fromstring(figure.read_text()).itertext())
    assert all(name in words for name in ("dp", "ip", "zeroth", "rl", "optimum"))


def test_tables_fit_the_terminal(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert main([*TWO, "--compare", "--budget", "500"]) == 0
    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines())) <= 80
    assert "above optimum" in shown
    assert "not priced" in shown


def test_nothing_fits(capsys):
    found = document(capsys, ["search", "llama-3-70b", "--on", "8xh100", "--pp", "8", "--global-batch", "64"], code=1)
    assert not found["fits"]
    assert found["best"] is None
    assert found["methods"]["dp"]["proven"]
