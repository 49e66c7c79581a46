"""A user's file as a program; one that is split already is told what it is."""

import pytest

from shardwise.run.auto.script import opened, program_in
from shardwise.run.trace.script import ScriptError

SPLIT = """
import torch
import torch.distributed as dist

def build():
    model = torch.nn.Linear(4, 4 // dist.get_world_size())
    return model, torch.optim.SGD(model.parameters())

def batch():
    return torch.zeros(2, 4)

def step(model, optimizer, samples):
    model(samples).sum().backward()
    optimizer.step()
"""


def read(path, text):
    path.write_text(text)
    with opened(path) as (script, names):
        return program_in(script, names, 2, "float64")


def test_a_program_that_is_split_already_is_sent_to_trace(tmp_path):
    with pytest.raises(ScriptError, match=r"split already; .* `shardwise trace`") as told:
        read(tmp_path / "train.py", SPLIT)
    assert "\n" not in str(told.value)
    assert len(read(tmp_path / "train.py", SPLIT.replace(" // dist.get_world_size()", "")).batches) == 3
