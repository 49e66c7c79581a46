"""What an optimizer step sees of a rank's parameters, whatever the sharding: flat local tensors and their gradients."""

from collections.abc import Iterable
from dataclasses import dataclass
from math import prod

from torch import Tensor, nn

from shardwise.run.runtime.net.decoder import Chunk
from shardwise.run.runtime.net.part import ModulePart, TensorPiece
from shardwise.run.runtime.parallel.comm import RankGroup


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


@dataclass(frozen=True)
class PieceRuns:
    """How ranks share one parameter: runs of elements (first, length) that each of a group holds."""

    group: RankGroup
    runs: tuple[tuple[tuple[int, int], ...], ...]


def one_by_one(locals_: Iterable[Local]) -> list[Local]:
    """Every tensor by itself, and each expert: views of local tensors, in a tensor's shape where all of it is there."""
    found = []
    for local in locals_:
        for span in local.spans:
            shape = span.held.piece.local_shape
            each = shape[1:] if span.held.piece.expert else shape
            size, end = prod(each), span.first + span.length
            first = span.first
            while first < end:
                stop = min(end, (first // size + 1) * size)
                part = slice(span.at + first - span.first, span.at + stop - span.first)
                tensor, grad, rounded = (
                    None if t is None else t[part].view(each) if stop - first == size else t[part]
                    for t in (local.tensor, local.grad, local.rounded)
                )
                assert tensor is not None
                spans = (ParameterSpan(span.held, first, 0, stop - first),)
                found.append(Local(tensor, spans, local.copies, grad, rounded))
                first = stop
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


def runs_of(spans: Iterable[ParameterSpan], held: RankParameter) -> tuple[tuple[int, int], ...]:
    return tuple((span.first, span.length) for span in spans if span.held is held)
