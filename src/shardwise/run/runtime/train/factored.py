"""Adafactor on runs of tensors: squares of gradients by row and column, and norms of weights and updates, are added up
among the ranks that share a tensor, so that every layout makes the same step (torch.optim.Adafactor's, with its
defaults). Each expert is a tensor by itself."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod

import torch
from torch import Tensor

from shardwise.plugins.optimizers import UpdateRule
from shardwise.run.runtime.parallel.comm import RankGroup
from shardwise.run.runtime.parallel.held import Local, ParameterSpan, PieceRuns, RankParameter
from shardwise.run.runtime.parallel.world import RankWorld

POWER = -0.8
"""the new squares weigh step ** POWER in the means"""
LEAST_SCALE = 1e-3
"""of a tensor's weights, on whose size that of its update depends"""


@dataclass
class FactoredTensor:
    """One tensor, or one expert of it, as this rank sees it."""

    held: RankParameter
    expert: int
    shared: RankGroup | None
    """ranks among whom ZeRO shards it"""
    cut: RankGroup | None
    """ranks among whom tensor parallelism has cut it"""
    places: list[int] = field(default_factory=list)
    """of this rank's own elements among what the optimizer updates"""
    means: dict[str, Tensor] = field(default_factory=dict)

    @property
    def whole(self) -> tuple[int, ...]:
        return self.held.piece.shape[self.held.piece.expert :]

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the rank's piece."""
        return self.held.piece.local_shape[self.held.piece.expert :]

    @property
    def is_matrix(self) -> bool:
        return self.held.piece.kind != "vector"

    @property
    def copies(self) -> int:
        """Ranks of `cut` that have the same piece."""
        return 1 if self.cut is None else self.cut.size * prod(self.shape) // prod(self.whole)

    @property
    def along(self) -> int:
        """Which of row and column sums is the piece's alone: its rows were cut, or its columns."""
        return 0 if self.shape[0] < self.whole[0] else 1


class FactoredMoments:
    def __init__(
        self, locals_: Sequence[Local], shares: Sequence[Mapping[RankParameter, PieceRuns | None]], world: RankWorld,
        rule: UpdateRule, decays: Mapping[bool, float],
    ) -> None:  # fmt: skip
        """`shares`: of every chunk; `decays`: of matrices and tables (True), and of vectors."""
        self.world, self.rule, self.decays, self.steps = world, rule, decays, 0
        self.dtype = locals_[0].tensor.dtype if locals_ else torch.get_default_dtype()
        self.wide = torch.promote_types(self.dtype, torch.float32)
        self.chunks = [[t for held, its in chunk.items() for t in self._tensors(held, its)] for chunk in shares]
        by_name = {(t.held, t.expert): t for chunk in self.chunks for t in chunk}
        self.variances: dict[int, Tensor] = {}
        for place, local in enumerate(locals_):
            (span,) = local.spans
            size = prod(span.held.piece.local_shape[span.held.piece.expert :])
            tensor = by_name[span.held, span.first // size if span.held.piece.expert else 0]
            tensor.places.append(place)
            if not tensor.is_matrix:
                self.variances[place] = torch.zeros_like(local.tensor)

    def _tensors(self, held: RankParameter, shares: PieceRuns | None) -> Iterable[FactoredTensor]:
        piece = held.piece
        is_cut = piece.local_shape[piece.expert :] != piece.shape[piece.expert :]
        cut = (self.world.etp if piece.expert else self.world.tp) if is_cut else None
        shared = shares.group if shares is not None and shares.group.size > 1 else None
        for expert in range(piece.local_shape[0] if piece.expert else 1):
            yield FactoredTensor(held, expert, shared, cut)

    def step(self, locals_: Sequence[Local], rate: float, shrink: float) -> None:
        """One update with the gradients over `shrink`."""
        self.steps += 1
        with self.world.comm.during("update"):
            for chunk in self.chunks:
                self._step(chunk, locals_, rate, shrink)

    def _step(self, chunk: list[FactoredTensor], locals_: Sequence[Local], rate: float, shrink: float) -> None:
        sums = [self._squares(tensor, locals_, shrink) for tensor in chunk]
        self._add_up(chunk, sums, norms=False)
        for tensor, each in zip(chunk, sums, strict=True):
            self._average(tensor, each)
        norms = [self._update_square(tensor, locals_, shrink) for tensor in chunk]
        self._add_up(chunk, norms, norms=True)
        for tensor, each, norm in zip(chunk, sums, norms, strict=True):
            count, is_matrix = prod(tensor.whole), tensor.is_matrix
            scale = (each[-1] / count).sqrt().clamp(min=LEAST_SCALE) * min(rate, self.steps**-0.5)
            scale = scale / (norm[0] / count).sqrt().clamp(min=1.0)
            for place in tensor.places:
                weights = locals_[place].tensor
                update = self._update(tensor, place, locals_, shrink)
                weights.mul_(1.0 - rate * self.decays[is_matrix])
                weights.sub_((update * scale).view_as(weights))

    def _grad(self, locals_: Sequence[Local], place: int, shrink: float) -> Tensor:
        local, wide = locals_[place], self.wide
        grad = torch.zeros_like(local.tensor, dtype=wide) if local.grad is None else local.grad.to(wide)
        return grad if shrink == 1.0 else grad / shrink

    @staticmethod
    def _rows(tensor: FactoredTensor, first: int, values: Tensor) -> tuple[Tensor, slice]:
        """A run of a matrix in whole rows, zero where it has no elements, and which rows those are."""
        columns, flat = tensor.shape[1], values.flatten()
        head, end = first % columns, first + len(flat)
        tail = -end % columns
        if head or tail:
            flat = torch.nn.functional.pad(flat, (head, tail))
        return flat.view(-1, columns), slice(first // columns, (end + tail) // columns)

    def _first(self, tensor: FactoredTensor, local: Local) -> int:
        """Of a run, in its tensor."""
        return local.spans[0].first - tensor.expert * prod(tensor.shape)

    def _squares(self, tensor: FactoredTensor, locals_: Sequence[Local], shrink: float) -> Tensor:
        """By row, by column, and of the weights."""
        rows, columns = tensor.shape if tensor.is_matrix else (0, 0)
        found = torch.zeros(rows + columns + 1, dtype=self.wide, device=self.world.device)
        for place in tensor.places:
            local, grad = locals_[place], self._grad(locals_, place, shrink)
            found[-1] += local.tensor.to(self.wide).square().sum()
            if tensor.is_matrix:
                part, which = self._rows(tensor, self._first(tensor, local), grad.square())
                found[which] += part.sum(1)
                found[rows:-1] += part.sum(0)
            else:
                self.variances[place].lerp_(grad.square().to(local.tensor.dtype), self.steps**POWER)
        return found

    def _add_up(self, chunk: list[FactoredTensor], sums: list[Tensor], *, norms: bool) -> None:
        """In place, as few messages as there are groups: dense tensors, then experts."""
        for expert in (False, True):
            mine = [(t, s) for t, s in zip(chunk, sums, strict=True) if t.held.piece.expert == expert]
            if shared := [(t.shared, s) for t, s in mine if t.shared is not None]:
                self._together(shared[0][0], [s for _, s in shared])
            if cut := [(t, s) for t, s in mine if t.cut is not None]:
                parts = []
                for tensor, each in cut:
                    rows = tensor.shape[0] if tensor.is_matrix and not norms else 0
                    shared_too = [each[rows:]] if tensor.along == 0 else [each[:rows], each[-1:]]
                    parts += [part.div_(tensor.copies) for part in shared_too]
                self._together(cut[0][0].cut, parts)

    def _together(self, group: RankGroup | None, parts: list[Tensor]) -> None:
        assert group is not None
        joined = self.world.comm.all_reduce(torch.cat(parts), group)
        for part, values in zip(parts, torch.split(joined, [len(part) for part in parts]), strict=True):
            part.copy_(values)

    def _average(self, tensor: FactoredTensor, sums: Tensor) -> None:
        if not tensor.is_matrix:
            return
        self._ensure(tensor)
        rows = tensor.shape[0]
        row, column = tensor.means["row_var"], tensor.means["col_var"]
        row.lerp_((sums[:rows, None] / tensor.whole[1]).to(row.dtype), self.steps**POWER)
        column.lerp_((sums[None, rows:-1] / tensor.whole[0]).to(row.dtype), self.steps**POWER)

    def _update(self, tensor: FactoredTensor, place: int, locals_: Sequence[Local], shrink: float) -> Tensor:
        """Of a run, before its size is limited."""
        grad = self._grad(locals_, place, shrink)
        least = torch.finfo(self.dtype).eps
        if not tensor.is_matrix:
            return self.variances[place].to(grad.dtype).clamp(min=least**2).rsqrt_().mul_(grad)
        run, which = self._rows(tensor, first := self._first(tensor, locals_[place]), grad)
        row, column = tensor.means["row_var"][which].to(grad.dtype), tensor.means["col_var"].to(grad.dtype)
        # the mean over all rows, of which a piece may have some: that over all columns is the same number
        mean = self._mean(tensor).clamp(min=least)
        found = (row @ column).div_(mean).clamp_(min=least**2).rsqrt_().mul_(run).flatten()
        head = first % tensor.shape[1]
        return found[head : head + grad.numel()]

    def _mean(self, tensor: FactoredTensor) -> Tensor:
        return tensor.means["row_var" if tensor.along else "col_var"].mean()

    def _update_square(self, tensor: FactoredTensor, locals_: Sequence[Local], shrink: float) -> Tensor:
        each = [self._update(tensor, place, locals_, shrink).square().sum() for place in tensor.places]
        none = torch.zeros(1, dtype=self.wide, device=self.world.device)
        return torch.stack(each).sum(0, keepdim=True) if each else none

    def _ensure(self, tensor: FactoredTensor) -> None:
        if tensor.is_matrix and not tensor.means:
            tensor.means = {
                name: torch.zeros(shape, dtype=self.dtype, device=self.world.device)
                for name, shape in self.rule.stored(*tensor.shape).items()
            }

    def moments_of(self, place: int) -> dict[str, Tensor]:
        return {"variance": self.variances[place]} if place in self.variances else {}

    def ensure_states(self, _: torch.device) -> None:
        for tensor in (t for chunk in self.chunks for t in chunk):
            self._ensure(tensor)

    def state_bytes(self) -> int:
        return sum(value.nbytes for chunk in self.chunks for tensor in chunk for value in tensor.means.values())

    def stored(self) -> Iterable[tuple[str, ParameterSpan, Tensor]]:
        """Means of whole pieces: their kind, where they lie among those of a whole tensor, values."""
        for tensor in (t for chunk in self.chunks for t in chunk):
            piece = tensor.held.piece
            for axis, (kind, value) in enumerate(tensor.means.items()):
                kept = {axis + piece.expert, 0} if piece.expert else {axis}
                shape = (*piece.shape[: piece.expert], *self.rule.stored(*tensor.whole)[kind])
                mine = replace(piece, shape=shape, cuts=tuple(c for c in piece.cuts if c[0] in kept))
                held = replace(tensor.held, piece=mine)
                yield kind, ParameterSpan(held, tensor.expert * value.numel(), 0, value.numel()), value
