"""SyncBatchNorm as CUDA runs it: statistics are gathered in the forward pass, gradients' sums added in the backward."""

import pytest

pytest.importorskip("torch")

from shardwise.run.trace.capture import traced

SCRIPT = """
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

def build():
    model = nn.Sequential(nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.Flatten(), nn.Linear(16 * 36, 4))
    model = DistributedDataParallel(nn.SyncBatchNorm.convert_sync_batchnorm(model).cuda())
    return model, torch.optim.SGD(model.parameters(), lr=0.1)

def batch():
    return torch.randn(4, 3, 8, 8, device="cuda")

def step(model, optimizer, x):
    model(x).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


@pytest.mark.parametrize(("world", "messages"), [(1, []), (4, [("all_gather", 4 * 33 * 4), ("all_reduce", 32 * 4)])])
def test_a_norm_over_ranks_sends_what_cuda_sends(tmp_path, world, messages) -> None:
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    sent = [(message.op, message.bytes) for event, message in traced(path, world).messages]
    normed = [each for each in sent if each in messages]
    assert normed == messages
    assert world > 1 or all(op == "all_reduce" for op, _ in sent)
