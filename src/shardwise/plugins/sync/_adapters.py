"""Strategies that only change gradients, as hooks of torch's own wrappers.

DistributedDataParallel: `ddp.register_comm_hook(*sync.ddp_hook(strategy))`. FSDP2: shard inside a node with
`fully_shard`, then `module.set_all_reduce_hook(sync.fsdp_hook(strategy, group))` on every FSDP module, with a group of
the ranks that hold the same shard.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from shardwise.plugins.sync._group import GroupComm
from shardwise.plugins.sync._layout import ParameterLayout
from shardwise.plugins.sync._strategy import State, Strategy


def _need_gradient_only(what: str, strategy: Strategy) -> None:
    if not strategy.gradient_only or strategy.optimizer != "any":
        raise ValueError(
            f"strategy: {strategy.name} does more than average gradients, and {what} hands over nothing else; use wrap"
        )


class _RowsInTurn:
    """One strategy on rows that come in turn (buckets, shards), each with its own state."""

    def __init__(self, strategy: Strategy, group: Any, seed: int, dense_steps: int) -> None:
        self.strategy, self.group, self.seed, self.dense_steps = strategy, group, seed, dense_steps
        self.held: dict[Any, tuple[GroupComm, State]] = {}
        self.steps: dict[Any, int] = {}

    def direction(self, key: Any, layout: ParameterLayout, row: Tensor) -> Tensor:
        n, rank = dist.get_world_size(self.group), dist.get_rank(self.group)
        g = row.detach().float()[None]
        if key not in self.held or self.held[key][0].layout != layout:
            self.strategy.check(n)
            comm = GroupComm(layout, list(range(n)), rank, group=self.group, seed=self.seed, device=row.device)
            self.held[key] = (comm, self.strategy.init(comm, g * 0.0))
        comm, state = self.held[key]
        comm.step = step = self.steps.get(key, 0)
        self.steps[key] = step + 1
        if step < self.dense_steps:
            return comm.mean(g)[0].to(row.dtype)
        return self.strategy.on_grad(comm, state, g * 0.0, g, 1.0, step)[0].to(row.dtype)


REBUILT = 2
"""steps until DistributedDataParallel has rebuilt its buckets; an error kept before would be lost, so they go dense"""


def ddp_hook(
    strategy: Strategy, *, group: Any = None, seed: int = 0
) -> tuple[_RowsInTurn, Callable[[_RowsInTurn, Any], torch.futures.Future[Tensor]]]:
    """(state, hook) for `register_comm_hook`. Learning rates are unknown there, so `fold_lr` has no effect."""
    _need_gradient_only("DistributedDataParallel", strategy)

    def hook(rows: _RowsInTurn, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:  # type: ignore[name-defined]
        shapes = [(str(i), tuple(p.shape)) for i, p in enumerate(bucket.parameters())]
        future: torch.futures.Future[Tensor] = torch.futures.Future()
        future.set_result(rows.direction(bucket.index(), ParameterLayout.named(shapes), bucket.buffer()))
        return future

    return _RowsInTurn(strategy, group, seed, REBUILT), hook


def fsdp_hook(strategy: Strategy, group: Any, *, seed: int = 0) -> Callable[[Tensor], None]:
    """A hook for one FSDP module: its shard of the gradient, already averaged inside, is averaged over `group`."""
    _need_gradient_only("FSDP2", strategy)
    if strategy.needs_whole:
        raise ValueError(
            f"strategy: {strategy.name}: {strategy.needs_whole}, and FSDP2 hands over shards; use mem_sgd or psgd"
        )
    rows = _RowsInTurn(strategy, group, seed, 0)

    def hook(shard: Tensor) -> None:
        shard.copy_(rows.direction("shard", ParameterLayout.flat(shard.numel()), shard.view(-1)).view(shard.shape))

    return hook
