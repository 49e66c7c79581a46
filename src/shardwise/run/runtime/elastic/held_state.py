"""Everything of a rank that a step changes, as tensors in one order: sent to a rank that has lost it, and summed up to
compare ranks that hold the same."""

from torch import Tensor

from shardwise.run.runtime.parallel.sharded import FsdpChunk
from shardwise.run.runtime.parallel.sync import Flats
from shardwise.run.runtime.train.engine import TrainingEngine


def state_tensors(engine: TrainingEngine) -> list[Tensor]:
    """Parameters, their copies in fp32, moments; the engine's own memory."""
    found: list[Tensor] = []
    for sync in engine.syncs:
        if isinstance(sync, Flats):
            found += [tensor for flat in sync.flats for tensor in (flat.parameters, *flat.masters)]
        elif isinstance(sync, FsdpChunk):
            found += [local.tensor for local in sync.locals()]
    engine.optimizer.ensure_states()
    return found + engine.optimizer.held()


def gradients(engine: TrainingEngine) -> list[Tensor]:
    """After the last backward pass of a step."""
    return [local.grad for local in engine.locals() if local.grad is not None]
