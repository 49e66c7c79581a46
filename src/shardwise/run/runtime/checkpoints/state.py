"""What of a training run is in a checkpoint, by name, and how it comes back.

A parameter and its moments are stored under the parameter's name and whole shape, so that any layout reads what it
needs of them.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch.distributed as dist
from torch import Tensor
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.state_dict_loader import load as read_checkpoint

from shardwise.run.runtime.checkpoints.folder import present
from shardwise.run.runtime.checkpoints.manifest import DamagedCheckpoint, Manifest, TensorForm, refuse_unlike
from shardwise.run.runtime.checkpoints.stated import SYNC, WORKER
from shardwise.run.runtime.checkpoints.storage import BlockReader, form_of
from shardwise.run.runtime.train.engine import TrainingEngine
from shardwise.run.runtime.train.parts import LoadsParts, Parts
from shardwise.run.runtime.train.quiet import quiet

THIS_RUN = "this run"


def state_of(
    engine: TrainingEngine, moments: Sequence[Mapping[str, Tensor]] | None = None
) -> dict[str, Parts | Tensor]:
    """Parameters and moments by name, and what a strategy of data parallelism keeps on this rank. The first rank of
    those that hold the same writes it. `moments`: the optimizer's states, where they are read."""
    found: dict[str, Parts] = {}
    if moments is None:
        engine.optimizer.ensure_states()
        moments = engine.optimizer.states()
    own = engine.across.own_names if engine.across else ""
    locals_ = engine.optimizer.parts(engine.locals())
    for local, states in zip(locals_, moments, strict=True):
        for kind, values in (("parameter", local.tensor), *states.items()):
            for span in local.spans:
                name = f"{own}{kind}.{span.held.piece.name}"
                parts = found.setdefault(name, Parts(span.held.piece.shape, values.dtype))
                parts.add(span, values.view(-1))
    for kind, span, values in engine.optimizer.stored():
        name = f"{own}{kind}.{span.held.piece.name}"
        found.setdefault(name, Parts(span.held.piece.shape, values.dtype)).add(span, values.view(-1))
    return {**found, **_of_strategy(engine), **engine.kept}


def load(engine: TrainingEngine, path: Path, group: Any = None) -> int:
    """The step it was taken after. The layout may be another than the one that wrote it. DamagedCheckpoint on all
    ranks where one of them read what was not written."""
    manifest, _ = present(path)
    wanted = forms_of(engine)
    refuse_other_workers(path, manifest, wanted)
    refuse_unlike(manifest.tensors, wanted, THIS_RUN)
    return load_listed(engine, path, manifest, group)


def load_listed(engine: TrainingEngine, path: Path, manifest: Manifest, group: Any = None) -> int:
    engine.optimizer.ensure_states()
    moments = engine.optimizer.states()
    wanted = state_of(engine, moments)
    try:
        with quiet():
            read_checkpoint(
                wanted, storage_reader=BlockReader(path, manifest), planner=LoadsParts(flatten_state_dict=False),
                process_group=group, no_dist=not dist.is_initialized(),
            )  # fmt: skip
    except CheckpointException as problem:
        rank, (why, _) = next(iter(problem.failures.items()))
        if isinstance(why, DamagedCheckpoint):
            raise DamagedCheckpoint(str(why)) from None
        raise ValueError(f"checkpoints: {path.name} cannot be loaded by rank {rank}: {why}") from None
    if engine.across is not None:
        head = _head(engine)
        mine = {name.removeprefix(head): wanted[name] for name in _of_strategy(engine)}
        engine.across.load({name: value for name, value in mine.items() if isinstance(value, Tensor)}, manifest.step)
    engine.optimizer.take(moments)
    engine.optimizer.set_steps(manifest.step)
    for sync in engine.syncs:
        sync.gather()
    engine.world.comm.events.clear()
    return manifest.step


def _head(engine: TrainingEngine) -> str:
    return f"{SYNC}{engine.world.rank}."


def _of_strategy(engine: TrainingEngine) -> dict[str, Tensor]:
    """State of a strategy of data parallelism belongs to its rank."""
    saved = engine.across.saved() if engine.across is not None else {}
    return {_head(engine) + name: tensor for name, tensor in saved.items()}


def forms_of(engine: TrainingEngine) -> dict[str, TensorForm]:
    """Dtype and whole shape of everything this rank reads."""
    return {name: form_of(known.dtype, known.size()) for name, known in state_of(engine).items()}


def refuse_other_workers(path: Path, manifest: Manifest, wanted: Mapping[str, TensorForm]) -> None:
    """ValueError where what a strategy of data parallelism kept is of other workers."""
    for name in sorted(name for name in wanted if name.startswith((SYNC, WORKER))):
        listed = manifest.tensors.get(name)
        if listed != wanted[name]:
            raise ValueError(
                f"checkpoints: {path.name} {f'has {listed.text()[:80]} as' if listed else 'lacks'} {name!r}; it was "
                "written with another --sync or, under one, another layout, and workers that differ cannot be dealt "
                "out again; write the layout it was written with, or another folder"
            )
