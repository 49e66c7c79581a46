"""`--init`: every rank reads the parts of the stored tensors that it holds, whatever the layout."""

from pathlib import Path

import msgspec

from shardwise.run.runtime.net.part import is_adapter
from shardwise.run.runtime.train.engine import TrainingEngine
from shardwise.run.runtime.train.parts import blocks_of
from shardwise.run.runtime.weights.configuration import same_arithmetic
from shardwise.run.runtime.weights.folder import WeightsFolder
from shardwise.run.runtime.weights.stored import FileTensor, stored_tensors
from shardwise.spec.model import Model

MOST_CONFIG = 4 * 2**20


def opened(model: Model, path: Path) -> tuple[WeightsFolder, dict[str, FileTensor]]:
    """Refused where a tensor is missing or of another shape, or a config.json beside says another arithmetic."""
    if not path.exists():
        raise ValueError(f"init: there is no {str(path)!r}; write a .safetensors file or a folder with them")
    weights, stored = WeightsFolder(path), stored_tensors(model)
    config = weights.folder / "config.json"
    if config.is_file() and config.stat().st_size <= MOST_CONFIG:
        try:
            same_arithmetic(model, msgspec.json.decode(config.read_bytes(), type=dict[str, object]))
        except (ValueError, RecursionError) as error:
            raise ValueError(f"init: {str(config)!r} is not JSON ({error}); write its folder without it") from None
    for one in stored.values():
        for name in one.names():
            weights.find(name, one.stored_shape)
    return weights, stored


def load_weights(engine: TrainingEngine, path: Path, *, frozen_only: bool = False) -> None:
    """Adapters, which no such file has, stay as they began."""
    weights, stored = opened(engine.task.model, path)
    for local in (*engine.frozen(), *([] if frozen_only else engine.locals())):
        for span in local.spans:
            if is_adapter(span.held.piece.name):
                continue
            one = stored[span.held.piece.name]
            for block in blocks_of(span, local.tensor):
                read = [
                    weights.block(weights.find(name, one.stored_shape), offsets, sizes)
                    for name, offsets, sizes in one.places(block.offsets, block.sizes)
                ]
                block.values.copy_(one.joined(read, block.sizes))
    for sync in engine.syncs:
        sync.gather()
    engine.world.comm.events.clear()
