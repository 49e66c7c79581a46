"""A rank's share of each batch: its sequences by data-parallel rank, its places in them by context-parallel rank."""

import torch
from torch import Tensor

from shardwise.runtime.parallel.pipeline import Batch
from shardwise.runtime.train.corpus import ByteWindows
from shardwise.runtime.train.engine import Engine


def batch_of(engine: Engine, source: ByteWindows, step: int) -> Batch:
    """The micro-batches of a step; sample numbers follow from the step alone, so any step can be resumed at."""
    task, at = engine.task, engine.context.positions
    share = task.job.global_batch // task.policy.dp
    first = step * task.job.global_batch + engine.world.data_index * share

    def micro_batch(index: int) -> tuple[Tensor, Tensor]:
        begin = first + index * task.policy.micro_batch
        windows = [torch.from_numpy(source.sample(begin + i)) for i in range(task.policy.micro_batch)]
        rows = torch.stack(windows, dim=1).to(engine.world.device)
        return rows[at], rows[at + 1]

    return micro_batch
