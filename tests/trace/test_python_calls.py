"""The script's own Python between two operators is counted, what tracing runs for itself is not."""

import sys

import pytest

pytest.importorskip("torch")

from shardwise.run.trace.capture import traced

SCRIPT = """
import torch

def build():
    model = torch.nn.Linear(8, 8)
    return model, torch.optim.SGD(model.parameters(), lr=0.1)

def batch():
    return torch.randn(4, 8)

def idle(x):
    return x

def step(model, optimizer, x):
    y = model(x)
    for _ in range({loops}):
        {line}
    y.sum().backward()
    optimizer.step()
"""


def counted(tmp_path, line: str, loops: int) -> tuple[int, int]:
    path = tmp_path / "script.py"
    path.write_text(SCRIPT.format(line=line, loops=loops))
    found = traced(path, 1).events
    return sum(event.python[0] for event in found), sum(event.python[1] for event in found)


def test_functions_of_the_script_are_counted(tmp_path) -> None:
    few, many = (counted(tmp_path, "y = idle(y)", loops) for loops in (0, 40))
    assert many[0] - few[0] == 40


def test_operators_are_not_calls_of_python(tmp_path) -> None:
    few, many = (counted(tmp_path, "y = y * 2.0", loops) for loops in (0, 40))
    assert many[0] == few[0]


def test_nobody_is_left_listening(tmp_path) -> None:
    def watch(*_) -> None: ...

    before = sys.getprofile()
    sys.setprofile(watch)
    try:
        with pytest.raises(ValueError, match="boom"):
            counted(tmp_path, "raise KeyError('boom')", 1)
        assert sys.getprofile() is watch
        counted(tmp_path, "y = idle(y)", 1)
        assert sys.getprofile() is watch
    finally:
        sys.setprofile(before)


MODULES = """
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

AGAIN = {again}

def build():
    layers = nn.ModuleList(nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8), nn.GELU()) for _ in range({layers}))
    return layers, torch.optim.SGD(layers.parameters(), lr=0.1)

def batch():
    return torch.randn(4, 8)

def forward(layers, x):
    for layer in layers:
        x = checkpoint(layer, x, use_reentrant=False) if AGAIN else layer(x)
    return x.sum()

def step(layers, optimizer, x):
    forward(layers, x).backward()
    optimizer.step()
    optimizer.zero_grad()
"""


def ran_alone(again: bool, layers: int) -> tuple[int, int]:
    """Functions and built-in ones of a forward and a backward pass that nobody traces."""
    names: dict = {}
    exec(MODULES.format(again=again, layers=layers), names)
    parts, given = names["build"](), names["batch"]()
    names["step"](*parts, given)
    counts = {"call": 0, "c_call": 0}

    def watch(_, event: str, __) -> None:
        if event in counts:
            counts[event] += 1

    before = sys.getprofile()
    sys.setprofile(watch)
    try:
        names["forward"](parts[0], given).backward()
    finally:
        sys.setprofile(before)
    return counts["call"], counts["c_call"]


def traced_calls(path, again: bool, layers: int) -> tuple[int, ...]:
    path.write_text(MODULES.format(again=again, layers=layers))
    events = [event for event in traced(path, 1).events if event.phase != "optimizer"]
    return tuple(sum(event.python[place] for event in events) for place in (0, 1))


@pytest.mark.parametrize("again", [False, True])
def test_layers_call_as_much_in_a_trace_as_in_a_step_on_its_own(tmp_path, again) -> None:
    few, many = (traced_calls(tmp_path / "script.py", again, layers) for layers in (4, 12))
    fewer, more = (ran_alone(again, layers) for layers in (4, 12))
    for place in (0, 1):
        assert many[place] - few[place] == pytest.approx(more[place] - fewer[place], rel=0.3)
