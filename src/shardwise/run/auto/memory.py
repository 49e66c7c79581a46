"""Parameters and optimizer state of one rank of a split model: foretold from the plan, and counted."""

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from shardwise.run.auto.plan import AutoPlan
from shardwise.run.auto.shares import expert_names, shares_of

COUNTER = "step"
"""what torch's optimizers count their steps by"""


def foretold_elements(model: nn.Module, plan: AutoPlan, stage: int, shard: int) -> int:
    """Of the parameters that the rank holds. `model`: before it is split; `shard`: the rank's place among FSDP2's."""
    degrees, cut = plan.degrees, shares_of(model, plan, None).of
    own = {id(p) for name in plan.own(stage) for p in model.get_submodule(name).parameters()}
    ends = {end.parameter: end.needed(plan.held[stage], len(plan.stages)) for end in plan.ends}
    ranks, total = degrees.shards * degrees.cp, 0
    experts = expert_names(model, plan)
    for name, parameter in model.named_parameters():
        if name in experts:
            total += parameter.numel() // degrees.ep
            continue
        shape = list(parameter.shape)
        if name in cut:
            shape[cut[name].axis] = len(cut[name].indices[0])
        if name in plan.whole and (id(parameter) in own or degrees.pp == 1):
            total += math.prod(shape)
        elif id(parameter) in own or degrees.pp == 1:
            # FSDP2 shares rows out in equal parts; the last ranks get what is left
            part = math.ceil(shape[0] / ranks) if shape else 1
            rows = max(0, min(part, shape[0] - shard * part)) if shape else 1
            total += rows * math.prod(shape[1:])
        elif ends.get(name, False):
            total += math.prod(shape)
    return total


def held_elements(parameters: Iterable[Any]) -> int:
    return sum((p.to_local() if hasattr(p, "to_local") else p).numel() for p in parameters)


def state_elements(optimizers: Iterable[torch.optim.Optimizer]) -> int:
    """Of what optimizers keep for each number of a parameter; counters of steps are not."""
    kept = [
        value for optimizer in optimizers for parameter, state in optimizer.state.items()
        for key, value in state.items()
        if isinstance(value, Tensor) and key != COUNTER and value.shape == parameter.shape
    ]  # fmt: skip
    return held_elements(kept)
