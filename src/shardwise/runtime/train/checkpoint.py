"""Checkpoints by torch's DCP: every rank writes its own parts, any other layout reads what it needs of them.

A parameter and its moments are stored under the parameter's name and whole shape. A rank's part of it is a run of
elements of its tensor-parallel piece, which is at most a few rectangles of the whole. A checkpoint is whole when its
folder has its final name: it is written beside it and moved.
"""

import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner, DefaultSavePlanner
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.metadata import ChunkStorageMetadata, Metadata, MetadataIndex, TensorProperties
from torch.distributed.checkpoint.planner import TensorWriteData, WriteItem, WriteItemType
from torch.distributed.checkpoint.state_dict_loader import load as read_checkpoint
from torch.distributed.checkpoint.state_dict_saver import save as write_checkpoint

from shardwise.runtime.parallel.held import Span
from shardwise.runtime.train.engine import Engine

_FOLDER = re.compile(r"step-(\d{8})")


@dataclass(frozen=True)
class Rectangle:
    """A block of the whole tensor, and the local elements it is kept in."""

    offsets: tuple[int, ...]
    sizes: tuple[int, ...]
    values: Tensor


def rectangles(shape: tuple[int, ...], first: int, count: int) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """(offsets, sizes) of the fewest blocks that are elements [first, first + count) of a tensor of this shape."""
    if count <= 0:
        return
    if len(shape) <= 1:
        yield (first,) if shape else (), (count,) if shape else ()
        return
    width = 1
    for n in shape[1:]:
        width *= n
    row, inside = divmod(first, width)
    if inside or count < width:
        part = min(count, width - inside)
        for offsets, sizes in rectangles(shape[1:], inside, part):
            yield (row, *offsets), (1, *sizes)
        yield from rectangles(shape, first + part, count - part)
        return
    rows = count // width
    yield (row, *(0 for _ in shape[1:])), (rows, *shape[1:])
    yield from rectangles(shape, first + rows * width, count - rows * width)


class Parts:
    """This rank's blocks of one whole tensor, in the form DCP asks of things that are not tensors."""

    def __init__(self, shape: tuple[int, ...], dtype: torch.dtype) -> None:
        self.shape, self.dtype = torch.Size(shape), dtype
        self.blocks: list[Rectangle] = []

    def add(self, span: Span, local: Tensor) -> None:
        piece, at = span.held.piece, span.at
        for offsets, sizes in rectangles(piece.local_shape, span.first, span.length):
            count = int(torch.Size(sizes).numel())
            inside = tuple(a + b for a, b in zip(piece.offsets, offsets, strict=True))
            self.blocks.append(Rectangle(inside, sizes, local[at : at + count].view(sizes)))
            at += count

    def size(self) -> torch.Size:
        return self.shape

    def __create_write_items__(self, fqn: str, object: Any) -> list[WriteItem]:
        return [
            WriteItem(
                index=MetadataIndex(fqn, torch.Size(b.offsets)),
                type=WriteItemType.SHARD,
                tensor_data=TensorWriteData(
                    chunk=ChunkStorageMetadata(offsets=torch.Size(b.offsets), sizes=torch.Size(b.sizes)),
                    properties=TensorProperties(dtype=self.dtype),
                    size=self.shape,
                ),
            )
            for b in self.blocks
        ]

    def __create_chunk_list__(self) -> list[ChunkStorageMetadata]:
        return [ChunkStorageMetadata(offsets=torch.Size(b.offsets), sizes=torch.Size(b.sizes)) for b in self.blocks]

    def __get_tensor_shard__(self, index: MetadataIndex) -> Tensor:
        return next(b.values for b in self.blocks if torch.Size(b.offsets) == index.offset)


class SavesParts(DefaultSavePlanner):
    def lookup_object(self, index: MetadataIndex) -> Any:
        found = self.state_dict[index.fqn]
        return found.__get_tensor_shard__(index) if isinstance(found, Parts) else super().lookup_object(index)


class LoadsParts(DefaultLoadPlanner):
    def set_up_planner(
        self, state_dict: dict[str, Any], metadata: Metadata | None = None, is_coordinator: bool = False
    ) -> None:
        """As it is: the default would copy what is no tensor, and values have to arrive in place."""
        self.state_dict = self.original_state_dict = state_dict
        self.metadata, self.is_coordinator = metadata, is_coordinator

    def lookup_tensor(self, index: MetadataIndex) -> Tensor:
        found = self.state_dict[index.fqn]
        return found.__get_tensor_shard__(index) if isinstance(found, Parts) else super().lookup_tensor(index)


def state_of(engine: Engine) -> dict[str, Parts]:
    """Parameters and moments by name. The first rank of those that hold the same writes it."""
    found: dict[str, Parts] = {}
    engine.optimizer.ensure_states()
    own = engine.across.own_names if engine.across else ""
    for local, states in zip(engine.locals(), engine.optimizer.states(), strict=True):
        for kind, values in (("parameter", local.tensor), *states.items()):
            for span in local.spans:
                name = f"{own}{kind}.{span.held.piece.name}"
                parts = found.setdefault(name, Parts(span.held.piece.shape, values.dtype))
                parts.add(span, values)
    return found


def save(engine: Engine, folder: Path, step: int) -> Path:
    """Whole or not there: a run that dies while it writes leaves a folder that no one reads."""
    final, beside = folder / f"step-{step:08}", folder / f".step-{step:08}"
    if engine.world.rank == 0:
        folder.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(beside, ignore_errors=True)
    _meet()
    write_checkpoint(
        _plain(state_of(engine), step) | _of_strategy(engine), checkpoint_id=str(beside), planner=SavesParts()
    )
    _meet()
    if engine.world.rank == 0:
        shutil.rmtree(final, ignore_errors=True)
        beside.rename(final)
    _meet()
    return final


def load(engine: Engine, path: Path) -> int:
    """The step it was taken after. The layout may be another than the one that wrote it."""
    strategy = _of_strategy(engine)
    wanted = _plain(state_of(engine), 0) | strategy
    _refuse_other_strategy(path, wanted)
    read_checkpoint(wanted, checkpoint_id=str(path), planner=LoadsParts(flatten_state_dict=False))
    step = int(wanted["step"])
    if engine.across is not None:
        head = _head(engine)
        engine.across.load({name.removeprefix(head): tensor for name, tensor in strategy.items()}, step)
    engine.optimizer.set_steps(step)
    for sync in engine.syncs:
        sync.gather()
    engine.world.comm.events.clear()
    return step


def _head(engine: Engine) -> str:
    return f"sync.{engine.world.rank}."


def _of_strategy(engine: Engine) -> dict[str, Tensor]:
    """State of a strategy of data parallelism belongs to its rank."""
    saved = engine.across.saved() if engine.across is not None else {}
    return {_head(engine) + name: tensor for name, tensor in saved.items()}


def _refuse_other_strategy(path: Path, wanted: dict[str, Any]) -> None:
    known = set(FileSystemReader(str(path)).read_metadata().state_dict_metadata)
    missing = sorted(set(wanted) - known)
    if missing:
        raise ValueError(
            f"checkpoints: {path.name} lacks {missing[0]!r}; it was written with another --sync or, under one, another "
            "number of ranks, and workers that differ cannot be dealt out anew"
        )


def load_newest(engine: Engine, folder: Path) -> int:
    found = newest(folder)
    return 0 if found is None else load(engine, found)


def newest(folder: Path) -> Path | None:
    whole = sorted(p for p in folder.glob("step-*") if _FOLDER.fullmatch(p.name)) if folder.is_dir() else []
    return whole[-1] if whole else None


def _plain(state: dict[str, Parts], step: int) -> dict[str, Any]:
    return {**state, "step": torch.tensor(step)}


def _meet() -> None:
    if dist.is_initialized():
        dist.barrier()
