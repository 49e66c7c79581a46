"""What an optimizer that looks at tensors keeps, computes and sends on each rank: its rule, asked tensor by tensor.

Rules that treat all elements alike need none of this: two numbers and the parameters of a rank say it all.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from heapq import heapreplace
from math import prod
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from shardwise.plugins.optimizers import Exchange, TensorKind, TensorPieces, UpdateRule, update_rule
from shardwise.spec.arch.tensors import Tensor, embedding_tensors, head_tensors, layer_tensors, mtp_tensors
from shardwise.spec.job import Job
from shardwise.spec.matrices import BLOCKWISE
from shardwise.spec.model import Model
from shardwise.spec.policy import MATRIX_LAYOUT
from shardwise.work.layout import Layout, Numbers, copies_held, sharded_over
from shardwise.work.parameters import rows_and_width, stage_tensors
from shardwise.work.stages import Grid, largest, totals

if TYPE_CHECKING:
    from shardwise.work import Work

Mask = NDArray[np.bool_]

EVEN = 50
"""matrices for each owner, above which dealing them out leaves no owner with more than 2 % over the mean"""


@dataclass(frozen=True)
class Matrices:
    """Whole matrices of one shape that the rule covers, on one tensor-parallel rank of each evaluated stage."""

    rows: float
    columns: float
    computed: tuple[Numbers, Numbers]
    """rows and columns of what is updated at once: whole ones, or pieces of tensor parallelism"""
    cut: bool
    """tensor parallelism has a piece of each on every rank"""
    arrives: Numbers
    """of a whole one, when its pieces are gathered: more where several ranks hold the same key/value heads"""
    expert: bool
    number: Grid
    """of which a rank has a piece, whatever ZeRO shards"""
    held: Grid
    """elements of those pieces"""

    @property
    def elements(self) -> float:
        return self.rows * self.columns

    def each(self, of: Callable[[float, float], float]) -> Grid:
        """Something that depends on the shape of what is updated at once."""
        shapes, back = np.unique(np.stack(self.computed, axis=1), axis=0, return_inverse=True)
        return np.array([of(*shape) for shape in shapes.tolist()])[back.reshape(-1), None]


def kind_of(tensor: Tensor) -> TensorKind:
    shape = tensor.shape[1:] if tensor.split == "expert" else tensor.shape
    if len(shape) != 2:
        return "vector"
    return "table" if tensor.part == "embedding" or tensor.role.startswith("head.") else "matrix"


def is_cut(tensor: Tensor) -> bool:
    """Over tensor-parallel ranks, an expert's over those of experts."""
    return tensor.split in ("column", "row", "vocab", "expert")


def cuts_columns(tensor: Tensor) -> bool:
    """Whether tensor parallelism leaves all rows on each rank."""
    return tensor.split == "row" or tensor.role == "expert.down.weight"


def pieces_of(tensor: Tensor, layout: Layout) -> TensorPieces:
    """What a rank holds of a tensor before ZeRO shards it."""
    if tensor.split != "expert":
        rows, columns = rows_and_width(tensor, layout)
        return TensorPieces(kind_of(tensor), np.ones_like(rows), rows, columns)
    count = tensor.shape[0] / np.minimum(layout.ep, tensor.shape[0])
    rows, columns = tensor.shape[1] + 0.0 * layout.tp, prod(tensor.shape[2:]) + 0.0 * layout.tp
    if cuts_columns(tensor):
        return TensorPieces(kind_of(tensor), count, rows, columns / layout.etp)
    return TensorPieces(kind_of(tensor), count, rows / layout.etp, columns)


def kept_bytes(model: Model, job: Job) -> float:
    """What an optimizer keeps of a whole model, without the copy in full precision."""
    rule = job.optimizer.rule
    rest = update_rule(rule.rest) if rule.rest else rule
    layers = ((layer_tensors(model, kind), times) for kind, times in enumerate(totals(model)))
    total = 0.0
    for tensors, times in (*layers, (embedding_tensors(model) + head_tensors(model), 1.0)):
        for tensor in tensors:
            experts, shape = (tensor.shape[0], tensor.shape[1:]) if tensor.split == "expert" else (1, tensor.shape)
            held = TensorPieces(kind_of(tensor), experts, shape[0], prod(shape[1:]))
            mine = rule if rule.covers(held.kind) else rest
            total += times * float(mine.state_bytes(held, job.precision.moment_bytes))
            if mine is rule and held.kind != "vector":
                whole = mine.factor_bytes(float(shape[0]), float(prod(shape[1:])), job.precision.moment_bytes)
                total += times * experts * whole
    return total


@dataclass(frozen=True)
class Updates:
    work: "Work"

    @property
    def rule(self) -> UpdateRule:
        return self.work.job.optimizer.rule

    def _tensors(self) -> Iterator[tuple[Tensor, Grid, bool]]:
        """(tensor, how many of it a stage has, whether the rule covers it)"""
        work, copies = self.work, copies_held(self.work.layout.policies)[:, None]
        parts = stage_tensors(work.model, work.stages, work.stack)
        if work.model.mtp_layers:
            parts.append((mtp_tensors(work.model), work.stages.last))
        for tensors, times in parts:
            for tensor in tensors:
                yield tensor, times * copies, self.rule.covers(kind_of(tensor))

    def owners(self, *, expert: bool) -> Numbers:
        """Ranks that whole tensors are dealt out to, with their state; 1 where each rank has its own part of all."""
        ranks = self.work.layout.expert_shard if expert else self.work.layout.shard
        return np.where(self.exchanged("owned"), ranks, 1.0)

    def sent(self, how: Exchange, *, expert: bool) -> Mask:
        """Whether pieces that ZeRO shards are gathered, or sent to an owner: not where a rank's shard is whole
        experts."""
        layout = self.work.layout
        if not expert:
            return np.asarray(self.exchanged(how) & (layout.shard > 1.0))
        return np.asarray(self.exchanged(how) & (self._experts < layout.expert_shard))

    def dealt(self, *, expert: bool) -> Numbers:
        """Ranks to which whole matrices go to be computed; 1 where each rank has its own part of all, or all."""
        ranks = self.work.layout.expert_shard if expert else self.work.layout.shard
        return np.where(self.sent("all-to-all", expert=expert), ranks, self.owners(expert=expert))

    def computing_ranks(self, *, expert: bool) -> Numbers:
        """Ranks of a shard group between whom the matrices are divided; 1 where each computes all."""
        layout, dealt = self.work.layout, self.dealt(expert=expert)
        if not expert:
            return dealt
        shared = self.exchanged("gather") | self.exchanged("all-to-all")
        return np.where(shared & (self._experts >= layout.expert_shard), layout.expert_shard, dealt)

    def computing_share(self, *, expert: bool) -> Numbers:
        """Of the matrices, what a rank computes on average."""
        return np.asarray(1.0 / self.computing_ranks(expert=expert), dtype=np.float64)

    @property
    def _experts(self) -> Numbers:
        """Of a layer, on a rank."""
        count = max((kind.experts.count for kind in self.work.model.kinds if kind.experts), default=1)
        return count / np.minimum(self.work.layout.ep, count)

    def exchanged(self, how: Exchange) -> Mask:
        """Whether ranks that share the covered tensors do so in that way."""
        policies = self.work.layout.policies
        stages = np.array([each == how for each in self.rule.exchanges])
        named = np.array([word == how for word in MATRIX_LAYOUT])[policies.matrix_layout]
        usual = (policies.matrix_layout == 0) | (policies.matrix_layout == BLOCKWISE)
        return np.asarray(np.where(usual, stages[policies.zero], named & (policies.zero > 0)))

    @property
    def gathers_cut(self) -> Mask:
        """Whether pieces of tensor parallelism are gathered before a matrix is updated."""
        policies = self.work.layout.policies
        return np.asarray((policies.matrix_layout != BLOCKWISE) & (self.rule.exchange_cut == "gather"))

    def _shards(self, tensor: Tensor) -> Numbers:
        layout = self.work.layout
        ranks = layout.expert_shard if tensor.split == "expert" else layout.shard
        return sharded_over(layout.policies.zero, 1, ranks)

    @cached_property
    def matrices(self) -> tuple[Matrices, ...]:
        """Those that the rule computes with whole."""
        layout, found = self.work.layout, []
        for tensor, times, covered in self._tensors():
            if not covered or kind_of(tensor) == "vector":
                continue
            held, expert = pieces_of(tensor, layout), tensor.split == "expert"
            rows, columns = map(float, tensor.shape[-2:])
            pieces = is_cut(tensor) & ~self.gathers_cut
            computed = np.where(pieces, held.rows, rows), np.where(pieces, held.columns, columns)
            ranks = layout.etp if expert else layout.tp
            parts = np.minimum(ranks, float(tensor.pieces or np.inf)) if is_cut(tensor) else np.ones_like(ranks)
            found.append(Matrices(
                rows, columns, computed, is_cut(tensor), ranks / parts * (parts > 1.0), expert,
                times * np.asarray(held.number)[:, None], times * np.asarray(held.elements)[:, None],
            ))  # fmt: skip
        return tuple(found)

    @cached_property
    def _held(self) -> tuple[Grid, Grid, Grid]:
        """On each stage: bytes of state, elements updated by the rule, and by the one it leaves the rest to. A rank is
        the one with the most where whole tensors are dealt out."""
        state, covered, others = (np.zeros_like(self.work.stages.index) for _ in range(3))
        moment = self.work.job.precision.moment_bytes
        rest = update_rule(self.rule.rest) if self.rule.rest else self.rule
        over = {
            expert: self.fullest(self.owners(expert=expert), [m for m in self.matrices if m.expert == expert])
            for expert in (False, True)
        }
        for tensor, times, mine in self._tensors():
            piece, ranks = pieces_of(tensor, self.work.layout), self._shards(tensor)
            more = times * over[tensor.split == "expert"] if mine else times
            more = more / ranks[:, None]
            state = state + more * np.asarray((self.rule if mine else rest).state_bytes(piece, moment))[:, None]
            elements = more * np.asarray(piece.elements)[:, None]
            covered, others = (covered + elements, others) if mine else (covered, others + elements)
        return state + self._factors(moment), covered, others

    def _factors(self, moment: float) -> Grid:
        """Bytes of state of whole matrices, on the ranks that compute them."""
        return self.of_fullest(lambda rows, columns: self.rule.factor_bytes(rows, columns, moment))

    def of_fullest(self, cost: Callable[[float, float], float]) -> Grid:
        """What costs so much by a matrix' shape, added up on the rank that computes most of it."""
        total, costs = np.zeros_like(self.work.stages.index), [each.each(cost) for each in self.matrices]
        if not any(each.any() for each in costs):
            return total
        for expert in sorted({each.expert for each in self.matrices}):
            mine = [(m, each) for m, each in zip(self.matrices, costs, strict=True) if m.expert == expert]
            dealt = self.dealt(expert=expert)
            over = self.fullest(dealt, [m for m, _ in mine], [each for _, each in mine])
            every = sum((m.number * each for m, each in mine), start=total * 0.0)
            total = total + every * over * self.computing_share(expert=expert)[:, None]
        return total

    @property
    def state_bytes(self) -> Grid:
        """Without the copy in full precision."""
        return self._held[0]

    @property
    def covered(self) -> Grid:
        return self._held[1]

    @property
    def updated(self) -> Grid:
        """All elements that a rank updates."""
        return self._held[1] + self._held[2]

    def fullest(self, owners: Numbers, mine: Sequence[Matrices], costs: Sequence[Grid] = ()) -> Grid:
        """What the owner with the most has of these matrices, over the mean of all: elements, or `costs` of each. 1
        where none are dealt out."""
        shape = self.work.stages.index.shape
        if not mine or not (owners > 1).any():
            return np.ones(shape)
        in_turn = self.exchanged("all-to-all")
        shapes, of = tuple((each.rows, each.columns) for each in mine), len(mine)
        costs = costs or [np.full((1, 1), each.elements) for each in mine]
        columns = [
            owners[:, None] * np.where(in_turn, -1.0, 1.0)[:, None],
            *(np.ceil(each.number) for each in mine),
            *costs,
        ]
        every = np.stack([np.broadcast_to(c, shape).ravel() for c in columns], axis=1)
        table, back = np.unique(every, axis=0, return_inverse=True)
        found = [
            dealt_out(shapes, tuple(row[1 + of :]), tuple(map(int, row[1 : 1 + of])), int(abs(row[0])), row[0] < 0.0)
            for row in table.tolist()
        ]
        return np.array(found)[back.reshape(-1)].reshape(shape)

    @property
    def computed_matrices(self) -> Numbers:
        """Of a rank on the stage with the most."""
        share = {expert: self.computing_share(expert=expert)[:, None] for expert in (False, True)}
        each = (m.number * share[m.expert] for m in self.matrices)
        return largest(sum(each, start=np.zeros_like(self.work.stages.index)))[0]

    def elements(self, *, expert: bool, cut: bool) -> Grid:
        """Of covered matrices: pieces that a rank holds before ZeRO shards them; `cut`: whole, of those that tensor
        parallelism has cut."""
        total = np.zeros_like(self.work.stages.index)
        for each in self.matrices:
            if each.expert == expert and (each.cut or not cut):
                total = total + (each.number * each.elements * each.arrives[:, None] if cut else each.held)
        return total

    def summed(self, *, expert: bool, cut: bool, norms: bool) -> Grid:
        """Numbers that ranks add up of tensors that each has a part of: squares by row and column, and of weights; then
        squares of updates (`norms`). `cut`: of those that tensor parallelism has cut."""
        total = np.zeros_like(self.work.stages.index)
        for tensor, times, covered in self._tensors():
            if covered and (tensor.split == "expert") == expert:
                total = total + times * summed_of(tensor, self.work.layout, cut=cut, norms=norms)[:, None]
        return total

    def number(self, *, expert: bool, cut: bool) -> Grid:
        total = np.zeros_like(self.work.stages.index)
        for each in self.matrices:
            if each.expert == expert and (each.cut or not cut):
                total = total + each.number
        return total


def summed_of(tensor: Tensor, layout: Layout, *, cut: bool, norms: bool) -> Numbers:
    """Of one tensor, or of all experts in it that a rank has."""
    held, one = pieces_of(tensor, layout), np.ones_like(layout.tp)
    rows, columns = (one * (0.0 if held.kind == "vector" or norms else side) for side in (held.rows, held.columns))
    if cut:
        ranks = layout.etp if tensor.split == "expert" else layout.tp
        parts = np.minimum(ranks, float(tensor.pieces or np.inf)) if is_cut(tensor) else one
        return np.asarray((parts > 1.0) * held.number * ((rows if cuts_columns(tensor) else columns) + 1.0))
    return np.asarray(held.number * (rows + columns + 1.0))


@lru_cache(maxsize=65_536)
def dealt_out(
    shapes: tuple[tuple[float, float], ...], costs: tuple[float, ...], counts: tuple[int, ...], owners: int,
    in_turn: bool,
) -> float:  # fmt: skip
    """The largest sum of costs over the mean, when matrices are dealt out."""
    if owners == 1 or not sum(counts) or sum(counts) > EVEN * owners:
        return 1.0
    spent = [0.0] * owners
    each = [(shape, cost) for shape, cost, count in zip(shapes, costs, counts, strict=True) for _ in range(count)]
    for owner, (_, cost) in zip(owners_of([shape for shape, _ in each], owners, in_turn=in_turn), each, strict=True):
        spent[owner] += cost
    return max(spent) * owners / sum(spent)


def owners_of(shapes: Sequence[tuple[float, float]], owners: int, *, in_turn: bool = False) -> list[int]:
    """Matrices go to owners by size, largest first, each to the owner with least, or in turn where they are sent in
    rounds."""
    loads, found = [(0.0, owner) for owner in range(owners)], [0] * len(shapes)
    order = sorted(range(len(shapes)), key=lambda i: (-prod(shapes[i]), shapes[i]))
    for place, index in enumerate(order):
        load, owner = loads[0]
        if not in_turn:
            heapreplace(loads, (load + prod(shapes[index]), owner))
        found[index] = place % owners if in_turn else owner
    return found
