"""A small network trained for some steps, as a source of traffic: replicated (ddp) or sharded (fsdp)."""

import time
from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import nn

from shardwise_lab.order import LAYERS, LabWorld
from shardwise_lab.ranks.collectives import REST_S, together

BATCH = 4
COMPUTE_S = 0.15
"""stands for what a GPU would compute: a quiet wire between two bursts"""


def network(width: int) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(*(part for _ in range(LAYERS) for part in (nn.Linear(width, width, bias=False), nn.ReLU())))


def training_spans(world: LabWorld) -> list[tuple[int, int, float, float]]:
    """(0, turn, start, end) of each step after the first, which makes connections and buckets."""
    step = _prepared(world, network(world.width))
    draw = torch.Generator().manual_seed(dist.get_rank())
    found = []
    for turn in range(world.steps + 1):
        dist.barrier()
        time.sleep(COMPUTE_S)
        start = together()
        step(torch.randn(BATCH, world.width, generator=draw))
        if turn:
            found.append((0, turn - 1, start, time.monotonic()))
        time.sleep(REST_S)
    return found


def _prepared(world: LabWorld, model: nn.Sequential) -> Callable[[torch.Tensor], None]:
    trained: nn.Module = model
    if world.training == "ddp":
        trained = nn.parallel.DistributedDataParallel(model, bucket_cap_mb=256)
    else:
        from torch.distributed.fsdp import fully_shard

        for layer in model:
            if isinstance(layer, nn.Linear):
                fully_shard(layer)
        fully_shard(model)
    optimizer = torch.optim.SGD(trained.parameters(), lr=0.01)

    def step(x: torch.Tensor) -> None:
        optimizer.zero_grad()
        (trained(x) - x).square().mean().backward()
        optimizer.step()

    return step
