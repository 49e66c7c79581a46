"""Loss on data that is not trained on, over all axes."""

from typing import NamedTuple

import torch

from shardwise.run.runtime.data.source import Source
from shardwise.run.runtime.parallel.forward import forward_only
from shardwise.run.runtime.train.engine import TrainingEngine
from shardwise.run.runtime.train.feed import batch_of


class Evaluation(NamedTuple):
    loss: float
    """mean of a token, or of an example"""
    accuracy: float
    """share of them whose target was the likeliest"""


def evaluate(engine: TrainingEngine, source: Source, steps: int) -> Evaluation:
    """Over so many batches, always the same ones."""
    engine.pack()
    world = engine.world
    sums = torch.zeros(2, dtype=torch.float64, device=world.device)
    for step in range(steps):
        batch = batch_of(engine, source, step)
        forward_only(engine.pipeline, batch, engine.task.micro_batches, lambda _, found: sums.add_(found.double()))
    with world.comm.during("step"):
        sums = world.comm.all_reduce(sums / world.tp.size, world.everyone)
    loss, accuracy = (sums / steps).tolist()
    return Evaluation(loss, accuracy)
