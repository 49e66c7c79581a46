"""A rank's parts of whole tensors, in the form torch's DCP asks of things that are not tensors.

A part is a run of elements of a tensor-parallel piece, which is at most a few rectangles of the whole.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner, DefaultSavePlanner
from torch.distributed.checkpoint.metadata import ChunkStorageMetadata, Metadata, MetadataIndex, TensorProperties
from torch.distributed.checkpoint.planner import TensorWriteData, WriteItem, WriteItemType

from shardwise.run.runtime.parallel.held import ParameterSpan


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


def blocks_of(span: ParameterSpan, local: Tensor) -> Iterator[Rectangle]:
    """Where a run of a parameter's elements lies in the whole tensor, and where it is kept."""
    piece, at = span.held.piece, span.at
    for offsets, sizes in rectangles(piece.local_shape, span.first, span.length):
        count = int(torch.Size(sizes).numel())
        inside = tuple(a + b for a, b in zip(piece.offsets, offsets, strict=True))
        yield Rectangle(inside, sizes, local[at : at + count].view(sizes))
        at += count


class Parts:
    """This rank's blocks of one whole tensor, in the form DCP asks of things that are not tensors."""

    def __init__(self, shape: tuple[int, ...], dtype: torch.dtype) -> None:
        self.shape, self.dtype = torch.Size(shape), dtype
        self.blocks: list[Rectangle] = []

    def add(self, span: ParameterSpan, local: Tensor) -> None:
        self.blocks += blocks_of(span, local)

    def copied(self) -> "Parts":
        """Values that later steps do not change, in the host's memory."""
        found = Parts(tuple(self.shape), self.dtype)
        found.blocks = [Rectangle(b.offsets, b.sizes, b.values.to("cpu", copy=True)) for b in self.blocks]
        return found

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
