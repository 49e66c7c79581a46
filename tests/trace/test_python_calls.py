"""The script's own Python between two operators is counted, what tracing runs for itself is not."""

import sys

import pytest

pytest.importorskip("torch")

from shardwise.trace.capture import traced

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
