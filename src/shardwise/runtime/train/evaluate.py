"""Loss on data that is not trained on, over all axes."""

from shardwise.runtime.data.source import Source
from shardwise.runtime.parallel.forward import forward_only
from shardwise.runtime.train.engine import TrainingEngine
from shardwise.runtime.train.feed import batch_of


def evaluate(engine: TrainingEngine, source: Source, steps: int) -> float:
    """The mean loss of a token over so many batches, always the same ones."""
    world, total = engine.world, 0.0
    for step in range(steps):
        part = forward_only(engine.pipeline, batch_of(engine, source, step), engine.task.micro_batches)
        with world.comm.during("step"):
            total += float(world.comm.all_reduce(part.double() / world.tp.size, world.everyone))
    return total / steps
