"""What an optimizer step sees of a rank's parameters, whatever the sharding: flat local tensors and their gradients."""

from collections.abc import Iterable
from dataclasses import dataclass

from torch import Tensor, nn

from shardwise.runtime.net.decoder import Chunk
from shardwise.runtime.net.part import ModulePart, TensorPiece


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


def held_by(chunk: Chunk) -> list[RankParameter]:
    return [RankParameter(part, name, part.pieces[name]) for part in chunk.parts for name in part.pieces]


def overlap(spans: Iterable[ParameterSpan], first: int, end: int) -> list[ParameterSpan]:
    """The parts of spans that lie in [first, end) of the tensor they describe, described from `first`."""
    found = []
    for span in spans:
        start, stop = max(span.at, first), min(span.at + span.length, end)
        if start < stop:
            found.append(ParameterSpan(span.held, span.first + start - span.at, start - first, stop - start))
    return found
