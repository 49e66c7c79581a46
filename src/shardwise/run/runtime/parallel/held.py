"""What an optimizer step sees of a rank's parameters, whatever the sharding: flat local tensors and their gradients."""

from collections.abc import Iterable
from dataclasses import dataclass
from math import prod

from torch import Tensor, nn

from shardwise.run.runtime.net.decoder import Chunk
from shardwise.run.runtime.net.part import ModulePart, TensorPiece


@dataclass(frozen=True)
class RankParameter:
    """One parameter of this rank."""

    part: ModulePart
    attribute: str
    piece: TensorPiece

    @property
    def parameter(self) -> nn.Parameter:
        found = getattr(self.part, self.attribute)
        assert isinstance(found, nn.Parameter)
        return found

    @property
    def late(self) -> bool:
        """Its gradient is summed over other ranks first, or comes from several chunks: after the backward pass."""
        return self.piece.partial or self.piece.copied or self.piece.tied or self.piece.lent


@dataclass(frozen=True)
class ParameterSpan:
    """A run of elements of one parameter inside a local tensor."""

    held: RankParameter
    first: int
    """in the parameter"""
    at: int
    """in the local tensor"""
    length: int


@dataclass
class Local:
    """A tensor the optimizer updates on this rank."""

    tensor: Tensor
    spans: tuple[ParameterSpan, ...]
    copies: int
    """ranks of the data-parallel group that hold the same"""
    grad: Tensor | None = None
    rounded: Tensor | None = None
    """the parameters themselves, where the tensor is their copy in fp32"""


def one_by_one(locals_: Iterable[Local]) -> list[Local]:
    """Every tensor in its shape, and each expert by itself: views of local tensors that hold whole ones."""
    found = []
    for local in locals_:
        for span in local.spans:
            shape = span.held.piece.local_shape
            if span.first or span.length != prod(shape):
                raise ValueError(f"zero: {span.held.piece.name} is cut, and only whole tensors run; write --zero 0")
            each = shape[1:] if span.held.piece.expert else shape
            size = prod(each)
            for first in range(0, span.length, size):
                part = slice(span.at + first, span.at + first + size)
                views = (None if t is None else t[part].view(each) for t in (local.tensor, local.grad, local.rounded))
                tensor, grad, rounded = views
                assert tensor is not None
                spans = (ParameterSpan(span.held, span.first + first, 0, size),)
                found.append(Local(tensor, spans, local.copies, grad, rounded))
    return found


def held_by(chunk: Chunk) -> list[RankParameter]:
    return [RankParameter(part, name, part.pieces[name]) for part in chunk.parts for name in part.pieces]


def frozen_in(chunk: Chunk) -> list[RankParameter]:
    return [RankParameter(part, name, part.frozen[name]) for part in chunk.parts for name in part.frozen]


def overlap(spans: Iterable[ParameterSpan], first: int, end: int) -> list[ParameterSpan]:
    """The parts of spans that lie in [first, end) of the tensor they describe, described from `first`."""
    found = []
    for span in spans:
        start, stop = max(span.at, first), min(span.at + span.length, end)
        if start < stop:
            found.append(ParameterSpan(span.held, span.first + start - span.at, start - first, stop - start))
    return found
