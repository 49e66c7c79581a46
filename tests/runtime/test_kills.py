"""Ranks and launchers that are killed change nothing: benchmarks/kills.py, in short."""

import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))
if sys.platform != "linux":
    pytest.skip("looks into /proc", allow_module_level=True)
import kills  # noqa: E402


@pytest.fixture
def bench(tmp_path) -> kills.KillBench:
    return kills.KillBench(tmp_path, seed=3)


def test_killed_runs_go_on_bit_for_bit(bench, capsys) -> None:
    bench.ranks_are_killed("dp 2", times=2)
    bench.launcher_is_killed_twice("dp 2")
    bench.stop_is_named("dp 2")
    bench.newest_is_damaged("dp 2", "a bit of the last part")
    bench.newest_is_damaged("dp 2", "resealed with a block twice")
    bench.folder_is_renamed("dp 2")
    found, told = bench.tally, capsys.readouterr().err
    assert found.kills >= 4, told
    assert found.bitwise_equal == found.tries == 3, told
    assert found.stops_named == found.stops_tried, told
    assert found.damaged_fell_back == 2, told
    assert found.folders_kept == found.folders_tried == 1, told
    assert (found.orphans, found.leftovers) == (0, 0), told


@pytest.mark.slow
def test_another_layout_goes_on(bench, capsys) -> None:
    bench.layout_changes("dp 2, zero 3", "dp 3")
    bench.layout_changes("pp 2", "one rank")
    assert bench.tally.bitwise_equal == 2, capsys.readouterr().err
