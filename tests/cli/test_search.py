"""search as a user meets it."""

import json
from xml.etree import ElementTree

import pytest

from shardwise.cli import main

ONE = ["search", "llama-3-8b", "--on", "8xh100", "--pp", "8", "--seq", "8192", "--global-batch", "64"]
TWO = ["search", "llama-3-8b", "--on", "8xh100", "--mixed", "8xa100-80", "--pp", "4", "--tp", "2", "--stage-tp", "2,4",
       "--seq", "8192", "--global-batch", "64"]  # fmt: skip
RANKS = ["search", "llama-3-70b", "--on", "hgx-h100-roce:256", "--problem", "ranks", "--tp", "8", "--pp", "4", "--seq",
         "4096", "--global-batch", "64"]  # fmt: skip
EXPERTS = ["search", "mixtral-8x7b", "--on", "4x2xh100", "--problem", "experts", "--ep", "4", "--seq", "4096",
           "--global-batch", "64", "--sample", "50"]  # fmt: skip
BAD = [
    ([*ONE, "--problem", "rank"], "did you mean 'ranks'"),
    ([*ONE, "--replicas", "8"], "belongs to --problem experts"),
    ([*RANKS, "--mixed", "8xa100-80"], "belongs to --problem stages"),
    ([*RANKS, "--free-nodes", "0-x"], "free-nodes"),
    ([*RANKS, "--free-nodes", "9-3"], "free-nodes"),
    ([*RANKS, "--free-nodes", "0-3"], "at least that many"),
    ([*RANKS, "--slow-nodes", "0", "--slow-speed", "2"], "slow-speed"),
    ([*RANKS, "--method", "dp"], "dp does not work on this problem"),
    ([*RANKS, "--dp", "4"], "write other degrees"),
    ([*EXPERTS, "--replicas", "3"], "replicas"),
    ([*EXPERTS, "--skew", "9"], "skew"),
    ([*EXPERTS, "--routing", "nowhere.csv"], "routing"),
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


def test_rank_placement(capsys, tmp_path):
    figure = tmp_path / "ranks.svg"
    more = ["--free-nodes", "0-19,60-79", "--slow-nodes", "3", "--figure", str(figure)]
    found = document(capsys, [*RANKS, *more, "--budget", "300"])
    assert found["problem"] == "ranks"
    assert found["methods"]["rl"]["objective"] == found["methods"]["rl"]["objective_s"] == found["best"]["objective_s"]
    assert found["bound_s"] <= found["best"]["objective_s"] <= found["default"]["objective_s"]
    assert len(found["best"]["node_box"]) == found["nodes"] == 32
    assert sum(found["best"]["parts_s"].values()) == pytest.approx(found["best"]["objective_s"])
    assert "seconds" in "".join(ElementTree.fromstring(figure.read_text()).itertext())


def test_expert_placement_by_all_methods(capsys, tmp_path):
    routing = tmp_path / "routing.csv"
    routing.write_text("\n".join(f"{i % 8},{(i * i + 1 + i) % 8 if i % 8 != (i * i + 1 + i) % 8 else (i + 1) % 8}"
                                 for i in range(40)))  # fmt: skip
    found = document(capsys, [*EXPERTS, "--routing", str(routing), "--compare", "--budget", "3000"])
    assert set(found["methods"]) == {"dp", "exhaustive", "ip", "zeroth", "rl"}
    for told in found["methods"].values():
        assert told["objective"] == pytest.approx(found["optimum_s"], rel=1e-6)
        assert told["gap"] == pytest.approx(0, abs=1e-6)
        assert len(told["trace"]) == len(told["trace_s"])
    assert sorted(e for rank in found["best"]["rank_experts"] for e in rank) == list(range(8))
    assert found["best"]["imbalance"] <= found["best"]["in_order"]["imbalance"]


@pytest.mark.parametrize("arguments", [RANKS, EXPERTS])
def test_placements_fit_the_terminal(capsys, monkeypatch, arguments):
    monkeypatch.setenv("COLUMNS", "80")
    assert main([*arguments, "--method", "zeroth", "--budget", "200"]) == 0
    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines())) <= 80
    assert "in order" in shown
    assert "above bound" in shown
