"""What the host spends on launches depends on who calls: the script under autograd, an optimizer, or torch's C++."""

import pytest

pytest.importorskip("torch")

from shardwise.run.trace.capture import traced
from shardwise.run.trace.events import COPIES, Pass, StepEvent
from shardwise.run.trace.launches import BARE, launches

REPLICAS = """
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

def build():
    model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8)))
    return model, torch.optim.SGD(model.parameters(), lr=0.1)

def batch():
    return torch.randn(4, 8)

def step(model, optimizer, x):
    model(x).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


def event(phase: str, scope: str = "") -> StepEvent:
    return StepEvent("mul", phase, Pass(8), scope, (), (), 0, 1)


def test_an_operator_under_autograd_costs_more_than_one_outside_it() -> None:
    forward, optimizer = (launches(event(phase), 0.0) for phase in ("forward", "optimizer"))
    assert forward > optimizer > BARE


def test_what_the_reducer_copies_is_a_launch_alone() -> None:
    assert launches(event("backward", COPIES), 0.0) == BARE


def test_the_reducer_copies_each_gradient_into_its_bucket_and_back_without_views(tmp_path) -> None:
    path = tmp_path / "script.py"
    path.write_text(REPLICAS)
    copies = [event for event in traced(path, 2).events if event.scope == COPIES]
    assert [event.name for event in copies] == ["mul"] * 4 + ["copy_"] * 4
    assert all(event.calls == 1 for event in copies[5:])
