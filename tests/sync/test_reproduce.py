"""The robust part of every published result, on problems small enough for a test."""

import json

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: nothing can be simulated")

from evidence.papers import reproduction, reproductions  # noqa: E402
from evidence.papers.__main__ import main  # noqa: E402
from evidence.papers._figure import papers_chart  # noqa: E402
from shardwise.report.charts import chart_svg  # noqa: E402

FAST = ("divergence", "local_drift", "matrix_quadratic", "speedup", "talk_times", "topologies")


def check(name: str) -> None:
    told = []
    result = reproduction(name).run(True, lambda done, of: told.append((done, of)))
    assert [check.claim for check in result.checks if not check.holds] == []
    assert all(len(row) == len(result.heads) for row in result.rows)
    assert all(done < of for done, of in told)
    svg = chart_svg(papers_chart(result))
    assert svg.startswith("<svg")
    assert svg.count("<polyline") == sum(1 for line in result.series if line.points)
    assert "nan" not in svg


@pytest.mark.parametrize("name", FAST)
def test_published_results_hold(name):
    check(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(reproductions()) - set(FAST)))
def test_longer_ones_hold(name):
    check(name)


def test_names():
    assert all(name == found.name for name, found in reproductions().items())
    with pytest.raises(ValueError, match="did you mean 'speedup'"):
        reproduction("speedups")


def test_the_command_writes_a_figure(capsys, tmp_path):
    figure = tmp_path / "times.svg"
    assert main(["talk_times", "--figure", str(figure)]) == 0
    printed = capsys.readouterr().out
    assert "holds:" in printed
    assert "FAILS" not in printed
    assert figure.read_text().startswith("<svg")
    assert main(["talk_times", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["holds"] is True
    for words, clue in ((["nothing"], "nothing"), (["talk_times", "--figure", "a.png"], ".svg")):
        assert main(words) == 2
        assert clue in capsys.readouterr().err
