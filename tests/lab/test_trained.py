"""Real trainings on a lab, beside what the planner says they send. Needs namespaces, torch and half a minute."""

import json
from textwrap import dedent

import pytest

from shardwise.show.cli import main
from shardwise_lab.build import standing
from shardwise_lab.emulated import emulated_of
from shardwise_lab.jobs import job_of
from shardwise_lab.knobs import Knobs
from shardwise_lab.measured import measured_on
from shardwise_lab.order import LabWorld

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("namespaces")]
JOBS = ("dp", "zero=3", "tp", "pp", "cp", "ep", "tp=2,pp=2", "sync=dsgd,topology=ring", "sync=local_sgd,every=2")
SCRIPT = """
import os
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(256, 256, bias=False))
for _ in range(3):
    model(torch.randn(8, 256)).square().mean().backward()
assert dist.get_world_size() == 4
print("rank", dist.get_rank(), "of", dist.get_world_size(), "on", os.environ["GLOO_SOCKET_IFNAME"])
dist.destroy_process_group()
"""


def test_ports_carry_what_the_planner_lists():
    pytest.importorskip("torch", reason="torch is not installed")
    worlds = [LabWorld(order=(0, 1, 2, 3), job=job_of(text, 4), steps=2) for text in JOBS]
    with standing(emulated_of("star4", Knobs(card_bytes_per_s=100e6 / 8))) as built:
        found = measured_on(built, worlds, 120.0, realtime=True)
    rows = {row.op: row for row in found.rows}
    assert {name: row.bytes_error for name, row in rows.items() if row.bytes_error > 0.02} == {}
    axes = {name: [axis.axis for axis in row.axes] for name, row in rows.items()}
    assert axes["tp=2,pp=2 step"] == ["tp", "pp"]
    assert axes["ep step"] == ["ep", "dp"]
    assert all(axis.measured_s > 0 for row in found.rows for axis in row.axes)
    # times are the machine's too: only that they are of this size
    assert all(0.2 < row.predicted_s / row.measured_s < 2.0 for row in found.rows)


def test_a_users_own_script_runs_under_its_own_torchrun(tmp_path, capsys):
    pytest.importorskip("torch", reason="torch is not installed")
    script = tmp_path / "train.py"
    script.write_text(dedent(SCRIPT))
    words = [
        "lab",
        "run",
        "--on",
        "star4",
        "--limit",
        "5 min",
        "--json",
        "--",
        "torchrun",
        "--nproc-per-node",
        "4",
        str(script),
    ]
    code = main(words)
    found = json.loads(capsys.readouterr().out)
    assert code == 0, found["notes"]
    assert any("--nproc-per-node 4" in note for note in found["notes"])
    ports = {port["link"]: port["measured_bytes"] for port in found["run"]["ports"]}
    # three sums of 256 x 256 floats, 2 (n - 1) / n of them from every card
    assert all(ports[f"node {gpu} gpu 0 > leaf 0"] > 3 * 1.5 * 4 * 256 * 256 for gpu in range(4))
    assert found["run"]["loads"]
