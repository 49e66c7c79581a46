"""The robust part of every published result, on problems small enough for a test."""

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: nothing can be simulated")

from shardwise.charts import chart_svg  # noqa: E402
from shardwise.report.sync_figure import sync_chart  # noqa: E402
from shardwise.sync._reproduce import reproduction, reproductions  # noqa: E402

FAST = ("divergence", "local_drift", "speedup", "talk_times", "topologies")


def check(name: str) -> None:
    told = []
    result = reproduction(name).run(True, lambda done, of: told.append((done, of)))
    assert [check.claim for check in result.checks if not check.holds] == []
    assert all(len(row) == len(result.heads) for row in result.rows)
    assert all(done < of for done, of in told)
    svg = chart_svg(sync_chart(result))
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
