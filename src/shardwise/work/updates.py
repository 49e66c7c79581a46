"""What an optimizer that looks at tensors keeps, computes and sends on each rank: its rule, asked tensor by tensor.

Rules that treat all elements alike need none of this: two numbers and the parameters of a rank say it all.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from heapq import heapify, heapreplace
from math import prod
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from shardwise.plugins.optimizers import Exchange, TensorKind, TensorPieces, UpdateRule, update_rule
from shardwise.spec.arch.tensors import Tensor, embedding_tensors, head_tensors, layer_tensors, mtp_tensors
from shardwise.spec.job import Job
from shardwise.spec.model import Model
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
    cut: bool
    """tensor parallelism has a piece of each on every rank"""
    expert: bool
    number: Grid
    """of which a rank has a piece, whatever ZeRO shards"""
    held: Grid
    """elements of those pieces"""

    @property
    def elements(self) -> float:
        return self.rows * self.columns


def kind_of(tensor: Tensor) -> TensorKind:
    shape = tensor.shape[1:] if tensor.split == "expert" else tensor.shape
    if len(shape) != 2:
        return "vector"
    return "table" if tensor.part == "embedding" or tensor.role.startswith("head.") else "matrix"


def is_cut(tensor: Tensor) -> bool:
    """Over tensor-parallel ranks, an expert's over those of experts."""
    return tensor.split in ("column", "row", "vocab", "expert")


def pieces_of(tensor: Tensor, layout: Layout) -> TensorPieces:
    """What a rank holds of a tensor before ZeRO shards it."""
    if tensor.split != "expert":
        rows, columns = rows_and_width(tensor, layout)
        return TensorPieces(kind_of(tensor), np.ones_like(rows), rows, columns)
    count = tensor.shape[0] / np.minimum(layout.ep, tensor.shape[0])
    return TensorPieces(kind_of(tensor), count, tensor.shape[1] / layout.etp, prod(tensor.shape[2:]) + 0.0 * layout.tp)


def shard_of(held: TensorPieces, ranks: Numbers) -> TensorPieces:
    """Of so many ranks' each: whole experts where there are enough, else rows."""
    share = held.number / ranks
    return TensorPieces(held.kind, np.maximum(share, 1.0), held.rows * np.minimum(share, 1.0), held.columns)


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
        """Ranks that whole tensors are dealt out to; 1 where each rank has its own part of all."""
        ranks = self.work.layout.expert_shard if expert else self.work.layout.shard
        return np.where(self.exchanged("owned"), ranks, 1.0)

    def gathered(self, *, expert: bool) -> Mask:
        """Whether pieces that ZeRO shards are gathered: not where a rank's shard is whole experts."""
        layout = self.work.layout
        if not expert:
            return np.asarray(self.exchanged("gather") & (layout.shard > 1.0))
        return np.asarray(self.exchanged("gather") & (self._experts < layout.expert_shard))

    def computing_ranks(self, *, expert: bool) -> Numbers:
        """Ranks of a shard group between whom the matrices are divided; 1 where each computes all."""
        layout = self.work.layout
        if not expert:
            return self.owners(expert=False)
        whole = self.exchanged("gather") & (self._experts >= layout.expert_shard)
        return np.where(whole, layout.expert_shard, self.owners(expert=True))

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
        stages = np.array([each == how for each in self.rule.exchanges])
        return np.asarray(stages[self.work.layout.policies.zero])

    def _shards(self, tensor: Tensor) -> Numbers:
        layout = self.work.layout
        ranks = layout.expert_shard if tensor.split == "expert" else layout.shard
        return sharded_over(layout.policies.zero, 1, ranks)

    @cached_property
    def matrices(self) -> tuple[Matrices, ...]:
        """Those that the rule computes with whole."""
        layout, found = self.work.layout, []
        for tensor, times, covered in self._tensors():
            if not (covered and kind_of(tensor) == "matrix"):
                continue
            held, expert = pieces_of(tensor, layout), tensor.split == "expert"
            rows, columns = tensor.shape[-2:]
            found.append(Matrices(
                float(rows), float(columns), is_cut(tensor), expert,
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
        over = {expert: self.fullest(expert=expert) for expert in (False, True)}
        for tensor, times, mine in self._tensors():
            own = shard_of(pieces_of(tensor, self.work.layout), self._shards(tensor))
            more = times * over[tensor.split == "expert"] if mine else times
            state = state + more * np.asarray((self.rule if mine else rest).state_bytes(own, moment))[:, None]
            elements = more * np.asarray(own.elements)[:, None]
            covered, others = (covered + elements, others) if mine else (covered, others + elements)
        return state, covered, others

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

    def fullest(self, *, expert: bool, seconds: dict[tuple[float, float], float] | None = None) -> Grid:
        """What the owner with the most has of whole matrices, over the mean of all; of their seconds where these are
        given by shape. 1 where none are dealt out."""
        mine = [each for each in self.matrices if each.expert == expert]
        owners, shape = self.owners(expert=expert), self.work.stages.index.shape
        if not mine or not (owners > 1).any():
            return np.ones(shape)
        columns = [np.broadcast_to(owners[:, None], shape), *(np.ceil(each.number) for each in mine)]
        table, back = np.unique(np.stack([c.ravel() for c in columns], axis=1), axis=0, return_inverse=True)
        sizes = tuple(each.elements for each in mine)
        costs = sizes if seconds is None else tuple(seconds[each.rows, each.columns] for each in mine)
        found = [dealt_out(sizes, costs, tuple(map(int, row[1:])), int(row[0])) for row in table.tolist()]
        return np.array(found)[back].reshape(shape)

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
                total = total + (each.number * each.elements if cut else each.held)
        return total

    def number(self, *, expert: bool, cut: bool) -> Grid:
        total = np.zeros_like(self.work.stages.index)
        for each in self.matrices:
            if each.expert == expert and (each.cut or not cut):
                total = total + each.number
        return total


@lru_cache(maxsize=65_536)
def dealt_out(sizes: tuple[float, ...], costs: tuple[float, ...], counts: tuple[int, ...], owners: int) -> float:
    """The largest sum of costs over the mean, when items go to owners by size, largest first, each to the owner with
    least."""
    if owners == 1 or not sum(counts) or sum(counts) > EVEN * owners:
        return 1.0
    loads = [(0.0, 0.0)] * owners
    heapify(loads)
    for size, cost, count in sorted(zip(sizes, costs, counts, strict=True), reverse=True):
        for _ in range(count):
            load, spent = loads[0]
            heapreplace(loads, (load + size, spent + cost))
    every = [spent for _, spent in loads]
    return max(every) * owners / sum(every)
