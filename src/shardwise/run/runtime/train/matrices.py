"""Updates of whole matrices whose pieces lie on several ranks: who computes them, and what is sent for that.

A rank's own elements of a matrix are runs of its piece; its piece is all of it, or what tensor parallelism has cut out.
Where ZeRO shards, ranks gather the piece (gather), send it to one of them and get theirs back (all-to-all), or one has
all of it anyway (owned, and whole experts). Pieces of tensor parallelism are gathered, or updated as they are
(blockwise).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod

import torch
from torch import Tensor

from shardwise.plugins.optimizers import Exchange, RunSettings, UpdateRule
from shardwise.run.runtime.parallel.comm import RankGroup
from shardwise.run.runtime.parallel.held import Local, ParameterSpan, PieceRuns, RankParameter
from shardwise.run.runtime.parallel.owned import Owners
from shardwise.run.runtime.parallel.world import RankWorld
from shardwise.spec.matrices import exchange_of, gathers_cut
from shardwise.spec.policy import Policy
from shardwise.work.updates import owners_of


@dataclass
class SplitMatrix:
    """One matrix, each expert by itself, as this rank sees it."""

    held: RankParameter
    expert: int
    """of those in the piece; 0 for others"""
    piece: tuple[int, int]
    """rows and columns of what tensor parallelism leaves a rank"""
    axis: int
    """along which it has cut"""
    cut: RankGroup | None
    """ranks whose pieces are gathered; None: the piece is updated as it is"""
    shares: PieceRuns | None
    """runs of the piece by rank, and the ranks; None: this one has all"""
    split: bool
    """no rank need have all of the piece"""
    parts: list[int] = field(default_factory=list)
    """places of this rank's own elements among what the optimizer updates"""
    state: dict[str, Tensor] = field(default_factory=dict)

    @property
    def shape(self) -> tuple[int, int]:
        """Of what is updated at once."""
        return self.whole if self.cut else self.piece

    @property
    def whole(self) -> tuple[int, int]:
        rows, columns = self.held.piece.shape[-2:]
        return rows, columns

    @property
    def lengths(self) -> list[int]:
        assert self.shares is not None
        return [sum(length for _, length in runs) for runs in self.shares.runs]

    def order(self) -> Tensor:
        """Places in the piece of the ranks' elements, one rank after the other."""
        assert self.shares is not None
        runs = [torch.arange(first, first + length) for runs in self.shares.runs for first, length in runs]
        return torch.cat(runs)

    def of_piece(self, of: Sequence[int]) -> tuple[Tensor, ...]:
        return torch.split(self.order(), list(of))


def owners_by_policy(held: Iterable[RankParameter], rule: UpdateRule, world: RankWorld) -> Owners:
    """Where every matrix of a rank's chunks has one owner under ZeRO 1 or 2."""
    policy, found = world.policy, dict[tuple[str, int], int]()
    if policy.zero not in (1, 2) or not rule.layouts:
        return found
    how = exchange_of(rule, policy)
    every = [h for h in held if h.piece.kind == "matrix" and rule.covers("matrix")]
    for expert in (False, True):
        group = world.expert_shard if expert else world.shard
        mine = [h for h in every if h.piece.expert == expert]
        if group.size == 1 or not mine:
            continue
        each = [(h.piece.name, e, _sides(h)) for h in mine for e in range(h.piece.local_shape[0] if expert else 1)]
        if how == "owned":
            owners = owners_of([sides for _, _, sides in each], group.size)
        elif expert and stay(mine[0], group):
            owners = [e * group.size // mine[0].piece.local_shape[0] for _, e, _ in each]
        else:
            continue
        found |= {(name, e): owner for (name, e, _), owner in zip(each, owners, strict=True)}
    return found


def stay(held: RankParameter, group: RankGroup) -> bool:
    """Whether each of the ranks that share experts has whole ones."""
    return held.piece.expert and held.piece.local_shape[0] >= group.size


def _sides(held: RankParameter) -> tuple[int, int]:
    rows, columns = held.piece.shape[-2:]
    return rows, columns


class WholeMatrices:
    def __init__(
        self, locals_: Sequence[Local], covered: Sequence[bool], shares: Mapping[RankParameter, PieceRuns | None],
        world: RankWorld, rule: UpdateRule, settings: RunSettings, weight_decay: float,
    ) -> None:  # fmt: skip
        """`locals_`: single tensors or runs of them; `shares`: of every parameter of the rank, in the same order on all
        ranks that share some."""
        self.world, self.rule, self.settings, self.weight_decay = world, rule, settings, weight_decay
        self.how: Exchange = exchange_of(rule, world.policy)
        self.steps = 0
        self.every = [m for held, its in shares.items() for m in self._matrices(held, its)]
        by_name = {(m.held, m.expert): m for m in self.every}
        for place, local in enumerate(locals_):
            if covered[place]:
                (span,) = local.spans
                size = prod(span.held.piece.local_shape[-2:])
                by_name[span.held, span.first // size].parts.append(place)
        self.moments = {
            place: torch.zeros_like(locals_[place].tensor) for m in self.every for place in m.parts if rule.kept
        }

    def _matrices(self, held: RankParameter, shares: PieceRuns | None) -> Iterable[SplitMatrix]:
        if held.piece.kind != "matrix" or not self.rule.covers("matrix"):
            return
        local, cut = held.piece.local_shape, self._cut(held, self.world.policy)
        rows, columns = local[-2:]
        axis = 0 if rows < held.piece.shape[-2] else 1
        for expert in range(local[0] if held.piece.expert else 1):
            mine = shares and replace(shares, runs=tuple(_within(r, expert, rows * columns) for r in shares.runs))
            yield SplitMatrix(held, expert, (rows, columns), axis, cut, mine, self._split(held, shares))

    def _split(self, held: RankParameter, shares: PieceRuns | None) -> bool:
        sent = self.how in ("gather", "all-to-all")
        return sent and shares is not None and shares.group.size > 1 and not stay(held, shares.group)

    def _cut(self, held: RankParameter, policy: Policy) -> RankGroup | None:
        if held.piece.local_shape[-2:] == held.piece.shape[-2:] or not gathers_cut(self.rule, policy):
            return None
        return self.world.etp if held.piece.expert else self.world.tp

    def step(self, locals_: Sequence[Local], rate: float, shrink: float) -> None:
        """One update with the gradients over `shrink`."""
        self.steps += 1
        with self.world.comm.during("update"):
            alone = [m for m in self.every if not m.split]
            for matrix in alone:
                if matrix.parts:
                    self._move(matrix, locals_, self._direction(matrix, self._own(matrix, locals_, shrink)), rate)
            shared = [m for m in self.every if m.split]
            if self.how == "all-to-all":
                for owned in _rounds(shared):
                    self._exchange(owned, locals_, rate, shrink)
                return
            for matrix in shared:
                assert matrix.shares is not None
                own = self._wire(self._own(matrix, locals_, shrink))
                every = self.world.comm.gathered(own, matrix.shares.group, matrix.lengths)
                piece = torch.empty_like(every)
                piece[matrix.order().to(piece.device)] = every
                moved = self._direction(matrix, piece).flatten()
                at = matrix.of_piece(matrix.lengths)[matrix.shares.group.index].to(piece.device)
                self._move(matrix, locals_, moved[at], rate)

    def _exchange(self, owned: Sequence[SplitMatrix], locals_: Sequence[Local], rate: float, shrink: float) -> None:
        """As many matrices as ranks share them, the n-th to the n-th rank and back."""
        assert owned[0].shares is not None
        group, comm = owned[0].shares.group, self.world.comm
        sent = [self._wire(self._own(m, locals_, shrink)) for m in owned]
        mine = owned[group.index] if group.index < len(owned) else None
        none = [0] * group.size
        lengths = [*(len(x) for x in sent), *none][: group.size]
        arrived = comm.exchanged(torch.cat(sent), group, lengths, mine.lengths if mine else none)
        back = arrived
        if mine is not None:
            piece, order = torch.empty_like(arrived), mine.order().to(arrived.device)
            piece[order] = arrived
            back = self._wire(self._direction(mine, piece)).flatten()[order]
        found = comm.exchanged(back, group, mine.lengths if mine else none, lengths)
        for matrix, part in zip(owned, torch.split(found, lengths[: len(owned)]), strict=True):
            self._move(matrix, locals_, part, rate)

    def _wire(self, x: Tensor) -> Tensor:
        return x.bfloat16() if self.rule.sent_bytes == 2 and x.dtype == torch.float32 else x

    def _own(self, matrix: SplitMatrix, locals_: Sequence[Local], shrink: float) -> Tensor:
        """This rank's elements of what a direction is computed from."""
        found = []
        for place in matrix.parts:
            local = locals_[place]
            grad = torch.zeros_like(local.tensor) if local.grad is None else local.grad.to(local.tensor.dtype)
            grad = grad if shrink == 1.0 else grad / shrink
            found.append(self.rule.sent(grad, self.moments.get(place, grad), self.settings).flatten())
        if not found:
            return self._nothing(locals_)
        return found[0] if len(found) == 1 else torch.cat(found)

    @staticmethod
    def _nothing(locals_: Sequence[Local]) -> Tensor:
        return locals_[0].tensor.flatten()[:0]

    def _direction(self, matrix: SplitMatrix, piece: Tensor) -> Tensor:
        """Of the piece."""
        piece = piece.view(matrix.piece)
        if matrix.cut is None:
            return self.rule.direction(piece, self._state(matrix, piece), self.steps, self.settings)
        pieces = self.world.comm.gathered(self._wire(piece), matrix.cut).chunk(matrix.cut.size)
        parts = matrix.whole[matrix.axis] // matrix.piece[matrix.axis]
        copies = matrix.cut.size // parts
        whole = torch.cat(pieces[::copies], matrix.axis)
        found = self.rule.direction(whole, self._state(matrix, whole), self.steps, self.settings)
        return found.chunk(parts, matrix.axis)[matrix.cut.index // copies].contiguous()

    def _state(self, matrix: SplitMatrix, like: Tensor) -> dict[str, Tensor]:
        if not matrix.state:
            dtype = torch.promote_types(like.dtype, torch.float32)
            for name, shape in self.rule.stored(*matrix.shape).items():
                square = len(shape) == 2 and name.endswith("basis")
                fresh = torch.eye(shape[0], dtype=dtype) if square else torch.zeros(shape, dtype=dtype)
                matrix.state[name] = fresh.to(like.device)
        return matrix.state

    def _move(self, matrix: SplitMatrix, locals_: Sequence[Local], own: Tensor, rate: float) -> None:
        far, own = rate * self.rule.stretch(*matrix.whole), own.flatten()
        parts = torch.split(own, [locals_[place].tensor.numel() for place in matrix.parts])
        for place, part in zip(matrix.parts, parts, strict=True):
            tensor = locals_[place].tensor
            tensor.mul_(1.0 - rate * self.weight_decay)
            tensor.add_(part.view_as(tensor), alpha=-far)

    def computed(self) -> list[SplitMatrix]:
        """Those that this rank computes with, and so keeps the state of."""
        found = [m for m in self.every if not m.split and m.parts]
        shared = [m for m in self.every if m.split]
        if self.how != "all-to-all":
            return found + shared
        for owned in _rounds(shared):
            shares = owned[0].shares
            assert shares is not None
            found += owned[shares.group.index : shares.group.index + 1]
        return found

    def moments_of(self, place: int) -> dict[str, Tensor]:
        return dict.fromkeys(self.rule.kept, self.moments[place]) if self.rule.kept else {}

    def ensure_states(self, device: torch.device) -> None:
        for matrix in self.computed():
            self._state(matrix, torch.zeros((), device=device, dtype=torch.get_default_dtype()))

    def state_bytes(self) -> int:
        return sum(t.numel() * t.element_size() for m in self.computed() for t in m.state.values())

    def stored(self) -> Iterable[tuple[str, ParameterSpan, Tensor]]:
        """State of whole matrices: its kind, where it lies in that of a whole tensor, values."""
        for matrix in self.computed():
            held, local = matrix.held, matrix.held.piece
            if matrix.state and matrix.cut is None and matrix.piece != matrix.whole:
                raise ValueError(
                    f"checkpoints: {self.rule.name} keeps factors of pieces of {local.name}, which no other layout "
                    "reads; write --matrix-layout owned"
                )
            for kind, value in matrix.state.items():
                shape, cuts = tuple(value.shape), local.cuts
                if local.expert:
                    shape, cuts = (local.shape[0], *shape), tuple(c for c in cuts if c[0] == 0)
                piece = replace(local, shape=shape, cuts=cuts if local.expert else ())
                span = ParameterSpan(replace(held, piece=piece), matrix.expert * value.numel(), 0, value.numel())
                yield kind, span, value


def _within(runs: Sequence[tuple[int, int]], index: int, size: int) -> tuple[tuple[int, int], ...]:
    """What of some runs lies in the index-th matrix of this size, from its begin."""
    low, high = index * size, (index + 1) * size
    cut = [(max(first, low), min(first + length, high)) for first, length in runs]
    return tuple((first - low, end - first) for first, end in cut if first < end)


def _rounds(matrices: Sequence[SplitMatrix]) -> Iterable[list[SplitMatrix]]:
    """The largest first, as many at once as ranks share them."""
    for expert in (False, True):
        mine = [m for m in matrices if m.held.piece.expert == expert]
        if not mine:
            continue
        assert mine[0].shares is not None
        size = mine[0].shares.group.size
        mine = sorted(mine, key=lambda m: (-prod(m.whole), m.whole))
        yield from (mine[at : at + size] for at in range(0, len(mine), size))
