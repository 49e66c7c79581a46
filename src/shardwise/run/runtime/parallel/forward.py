"""Forward passes alone, through all pipeline stages: what an evaluation runs.

Micro-batch by micro-batch and stage by stage, the same order on every rank, so nothing waits in a circle.
"""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.distributed.fsdp import FSDPModule

from shardwise.run.runtime.parallel.comm import CollectiveHandle
from shardwise.run.runtime.parallel.pipeline import Batch, StagePipeline
from shardwise.run.runtime.private import forget_forward


def forward_only(
    pipeline: StagePipeline, batch: Batch, micro_batches: int, ended: Callable[[int, Tensor], object]
) -> None:
    """`ended`: told of each micro-batch what the head makes of it, where this rank has the head."""
    world = pipeline.world
    comm, here = world.comm, world.stage
    # a model that is held twice, from both ends, is passed once
    chunks = ((chunk, stage) for (rank, chunk), stage in pipeline.stage_of.items() if rank == here)
    mine = sorted((stage, chunk) for chunk, stage in chunks if pipeline.line(chunk) == 0)
    sent = list[CollectiveHandle]()
    kept: dict[int, Tensor] = {}
    with torch.no_grad(), comm.during("forward"):
        for index in range(micro_batches):
            for stage, chunk in mine:
                x, targets = batch(index)
                if stage:
                    x = kept.pop(stage) if stage in kept else _taken(pipeline, stage)
                y = pipeline.chunks[chunk](x, targets)
                if stage == pipeline.last:
                    ended(index, y)
                elif pipeline.rank_of[stage + 1, 0] == here:
                    kept[stage + 1] = y
                else:
                    channel = pipeline.channels["forward", here, pipeline.rank_of[stage + 1, 0]]
                    sent.append(comm.start_send(y.contiguous(), channel.peer, channel.group))
    for pending in sent:
        pending.wait()
    _let_go(pipeline)


def _taken(pipeline: StagePipeline, stage: int) -> Tensor:
    channel = pipeline.channels["forward", pipeline.rank_of[stage - 1, 0], pipeline.world.stage]
    return pipeline.world.comm.received(pipeline.like, channel.peer, channel.group)


def _let_go(pipeline: StagePipeline) -> None:
    """FSDP waits for a backward pass, which does not come: with stages it keeps what it gathered until then."""
    for chunk in pipeline.chunks:
        for module in chunk.modules():
            if isinstance(module, FSDPModule):
                module.reshard()
                forget_forward(module)
