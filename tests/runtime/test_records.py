"""Real runs record where their time went, and what is put into them is named: benchmarks/operate.py, in short."""

import json
import signal
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))
if sys.platform != "linux":
    pytest.skip("looks into /proc", allow_module_level=True)
from _operate_cases import (  # noqa: E402
    Fault,
    damaged,
    hot_expert,
    leak,
    models_in,
    not_a_number,
    signalled,
    slow_compute,
    slow_data,
)
from _operate_faults import run_fault  # noqa: E402
from shardwise.measured.diagnose.records import grid_of  # noqa: E402
from shardwise.programs.importers.step_records import read_records, record_files  # noqa: E402

MIB = 2**20
FAULTS = [
    Fault("a slow rank", "dp2", ("straggler",), 1, slow_compute(1, 4.0, 5)),
    Fault("late data", "dp2", ("data",), 0, slow_data(0, 0.3, 0)),
    Fault("a hot expert", "ep2", ("hot_expert",), None, hot_expert(3, 0)),
    Fault("a leak", "dp2", ("memory_leak",), 1, leak(1, 4 * MIB)),
    Fault("a killed rank", "dp2", ("killed",), 1, outside=signalled(1, signal.SIGKILL, 5)),
    Fault("a loss that is not a number", "dp2", ("not_finite",), None, not_a_number(4)),
    Fault("a damaged checkpoint", "dp2", ("damaged_checkpoint",), None, afterwards=damaged("bit", 1)),
]


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_what_was_put_in_is_named(fault, tmp_path):
    run = run_fault(fault, models_in(tmp_path / "models"), tmp_path / "run")
    assert run.named, json.dumps(run.answer["causes"], indent=1)


def test_a_run_records_its_steps_and_a_killed_rank_is_named(tmp_path):
    run = run_fault(FAULTS[4], models_in(tmp_path / "models"), tmp_path / "run")
    assert run.named, json.dumps(run.answer["causes"], indent=1)
    assert run.answer["ended"] == "failed"
    found = read_records(record_files(run.records), "")
    grid = grid_of(found)
    assert grid.count >= 4
    assert [rank.head.places["dp"] for rank in found.ranks.values()] == [0, 1]
    # every second of a step went somewhere
    parts = grid.own_s + grid.data_s + grid.comm_s
    assert (parts <= grid.step_s * 1.001).all()
    assert (grid.comm_s > 0).all()
    assert (grid.cpu_s > 0).all()
    assert "dp" in grid.axes_s


@pytest.mark.slow
def test_experts_are_counted(tmp_path):
    run = run_fault(Fault("", "ep2"), models_in(tmp_path / "models"), tmp_path / "run")
    steps = read_records(record_files(run.records), "").ranks[0].steps
    # two layers, eight experts; 16 tokens of 3 sequences to two of them each
    assert [len(row) for row in steps[-1].experts] == [8, 8]
    assert [sum(row) for row in steps[-1].experts] == [16 * 3 * 2] * 2
