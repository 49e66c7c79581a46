"""One small training task, the same for a simulation and for real processes."""

import torch
from torch import nn

from shardwise.plugins.sync import Strategy, strategies

STEPS = 7
WORKERS = 4
EXAMPLES = {f"{name}-{i}": example for name, kind in strategies().items() for i, example in enumerate(kind.examples())}
FIRST = [name for name in EXAMPLES if name.endswith("-0")]
"""one of each strategy"""
FAMILIAR = ("psgd-0", "mem_sgd-0", "local_sgd-0")
"""for another optimizer, and for the library's own all-reduce"""
HOOKED = ("psgd-0", "mem_sgd-7")
"""for DistributedDataParallel: do not depend on the order of parameters, and start dense"""


def adamw(parameters):
    return torch.optim.AdamW(parameters, lr=0.01)


def model_fn() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 13), nn.Tanh(), nn.Linear(13, 9), nn.Tanh(), nn.Linear(9, 3))


def optimizer_for(strategy: Strategy):
    if strategy.needs_optimizer() == "sgd":
        return lambda parameters: torch.optim.SGD(parameters, lr=0.05)
    return lambda parameters: torch.optim.SGD(parameters, lr=0.05, momentum=0.9, nesterov=True)


def batch_fn(worker: int, step: int) -> tuple[torch.Tensor, torch.Tensor]:
    draw = torch.Generator().manual_seed(1000 * worker + step)
    inputs = torch.randn(6, 5, generator=draw) + 0.3 * worker
    return inputs, torch.randint(0, 3, (6,), generator=draw)


loss_fn = nn.functional.cross_entropy
