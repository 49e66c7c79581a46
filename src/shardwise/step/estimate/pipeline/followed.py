"""Pipelines whose schedule's order is followed task by task, because no law tells how they wait."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from shardwise.arrays import Ints
from shardwise.plugins.pipeline import schedule_names
from shardwise.plugins.schedules import held_pieces, schedules
from shardwise.spec.model import Model
from shardwise.step.estimate.pipeline.micro_batch import (
    MicroBatch,
    Reductions,
    piles_up,
    runs_ahead,
    seconds_of_parts,
    splits_backward,
)
from shardwise.step.tasks.longest import Ends, Lengths, Pipelines, pipeline_ends
from shardwise.work.layout import Numbers
from shardwise.work.pieces import piece_kinds
from shardwise.work.stages import Grid, rank_layers

Cube = NDArray[np.float64]
"""the last axis are policies"""
TOGETHER = 8192
"""policies followed at once: more need more memory and are not faster"""
SLOW = 0.02
"""of a micro-batch on the busiest stage: transfers under way and copies to the host that take longer than this hold up
stages in turn, which no law tells"""


def followed_rows(given: MicroBatch) -> Ints:
    """Where the backward is split, where stages run far ahead or chunks are not alike, where each micro-batch reduces
    its gradients and stages do so at different paces; of stages with one chunk also where transfers or copies to the
    host take long, and where all forwards of few micro-batches come first."""
    work, reductions = given.work, given.reductions
    policies, model, split = work.layout.policies, work.model, work.stack.abilities.stage_split
    chunked = policies.vpp > 1
    sure = splits_backward(work) | runs_ahead(work) | (reductions.each & reductions.paces.differ)
    longest = SLOW * given.stage.load.max(axis=1)
    waits = (given.transfers.under_way > longest) | (given.stage.copies.max(axis=1) > longest)
    waits |= piles_up(work) & (2.0 * work.layout.in_pass <= policies.pp)
    sure |= (policies.pp > 2) & (policies.vpp == 1) & waits
    if len(model.kinds) == 1 and split == "even" and not model.mtp_layers:
        chunked &= model.layers % (policies.pp * policies.vpp) != 0
    rows = np.flatnonzero((policies.pp > 1) & chunked & ~sure)
    keys = np.stack([policies.schedule[rows], policies.pp[rows], policies.vpp[rows]], axis=1)
    distinct, place = np.unique(keys, axis=0, return_inverse=True)
    unlike = [_unlike(model, split, schedule_names()[code], pp, vpp) for code, pp, vpp in distinct.tolist()]
    sure[rows] = np.array(unlike, dtype=np.bool_)[place.reshape(-1)]
    return np.flatnonzero(sure & (policies.pp > 1))


@dataclass(frozen=True)
class _Order:
    """A schedule on so many stages of so many chunks, and what its pieces hold."""

    schedule: str
    pp: int
    vpp: int
    held: Ints
    """ranks x chunks: which piece that is"""
    pieces: Grid
    """pieces that are not alike x units: layers of each kind, the embedding, the head"""
    piece: Ints
    """of each piece of the model: which of these"""

    @property
    def joins_ends(self) -> bool:
        """Some rank holds both ends of the model."""
        return {0, len(self.piece) - 1} <= set(self.held[0].tolist())


@lru_cache(maxsize=4096)
def _order(model: Model, split: str, name: str, pp: int, vpp: int) -> _Order:
    held = held_pieces(name, pp, vpp)
    kinds = piece_kinds(model, held, np.array(rank_layers(model, split, pp, vpp), dtype=np.int64))
    ends = np.zeros((len(kinds), 2))
    ends[0, 0] = ends[-1, 1] = 1.0
    pieces, piece = np.unique(np.hstack([kinds, ends]), axis=0, return_inverse=True)
    return _Order(name, pp, vpp, held, pieces, piece.reshape(-1))


@lru_cache(maxsize=4096)
def _unlike(model: Model, split: str, name: str, pp: int, vpp: int) -> bool:
    return len({tuple(row) for row in _order(model, split, name, pp, vpp).pieces[:, :-2].tolist()}) > 1


@dataclass(frozen=True)
class _Units:
    """Seconds of policies that are followed, units x policies."""

    forward: Grid
    total: Grid
    inputs: Grid
    weight: Grid
    copied: Grid | None
    """to the host and back, of layers; None where nothing goes there"""
    reduced: Grid
    """before any overlap, on the stage whose groups lie worst"""
    gathered: Grid

    @classmethod
    def of(cls, given: MicroBatch, rows: Ints) -> "_Units":
        synced = (given.reductions.take(rows).rates, given.gathers.take(rows).rates)
        reduced, gathered = (np.stack(seconds_of_parts(rates, given.work, rows)).sum(axis=0) for rates in synced)
        copied = np.stack([seconds[rows] for seconds in given.copy_s]) if given.copy_s else None
        forward, total, inputs, weight = (
            np.stack(given.of_units(name, rows)) for name in ("forward", "total", "inputs", "weight")
        )
        return cls(forward, total, inputs, weight, copied, reduced, gathered)

    def take(self, places: Ints) -> "_Units":
        return _Units(
            forward=self.forward[:, places],
            total=self.total[:, places],
            inputs=self.inputs[:, places],
            weight=self.weight[:, places],
            copied=None if self.copied is None else self.copied[:, places],
            reduced=self.reduced[:, places],
            gathered=self.gathered[:, places],
        )


@dataclass(frozen=True)
class _Followed:
    """Policies that share an order."""

    rows: Ints
    pipelines: Pipelines
    reduced: Cube
    """ranks x chunks x policies: seconds of a step, before any overlap"""
    gathered: Cube
    forward: Cube
    """of a micro-batch on the same"""


def follow(given: MicroBatch, rows: Ints) -> Iterator[tuple[Ints, Ends, Numbers, Numbers]]:
    """For policies that share a schedule and its stages: the ends of every rank, how long reductions go on behind the
    pipeline, and how much later it starts because of gathers."""
    work, policies = given.work, given.work.layout.policies
    keys = np.stack([policies.schedule, policies.pp, policies.vpp], axis=1)[rows]
    distinct, place = np.unique(keys, axis=0, return_inverse=True)
    orders = [
        _order(work.model, work.stack.abilities.stage_split, schedule_names()[code], pp, vpp)
        for code, pp, vpp in distinct.tolist()
    ]
    sorted_rows = np.argsort(place.reshape(-1), kind="stable")
    for at in range(0, len(rows), TOGETHER):
        some = sorted_rows[at : at + TOGETHER]
        yield from _follow(given, rows[some], [(order, np.flatnonzero(place.reshape(-1)[some] == number))
                                               for number, order in enumerate(orders)])  # fmt: skip


def _follow(
    given: MicroBatch, rows: Ints, orders: list[tuple[_Order, Ints]]
) -> Iterator[tuple[Ints, Ends, Numbers, Numbers]]:
    """`orders`: and the places of the rows that have them."""
    micro = given.work.layout.in_pass[rows].astype(np.int64)
    units = _Units.of(given, rows)
    ordered = [(order, places[_has_order(order, micro[places])]) for order, places in orders]
    several = [
        _prepared(given, rows[places], order, micro[places], units.take(places))
        for order, places in ordered
        if len(places)
    ]
    for each, ends in zip(several, pipeline_ends([each.pipelines for each in several]), strict=True):
        reductions, hidden = given.reductions.take(each.rows), given.gathers.hidden[each.rows]
        under = hidden * np.minimum(each.gathered, each.forward)
        late = _gathered_before(ends, each.gathered, under, hidden > 0.0, reductions.slowdown)
        yield each.rows, ends, _reduced_behind(ends, each.reduced, reductions), late


def _has_order(order: _Order, micro_batches: Ints) -> NDArray[np.bool_]:
    """Where there is such an order: measured runs that round their micro-batches keep the law."""
    none = [micro for micro in set(micro_batches.tolist()) if not _legal(order.schedule, order.pp, order.vpp, micro)]
    return ~np.isin(micro_batches, none)


@lru_cache(maxsize=4096)
def _legal(name: str, pp: int, vpp: int, micro_batches: int) -> bool:
    return not schedules()[name].legal(pp, vpp, micro_batches)


def _prepared(given: MicroBatch, rows: Ints, order: _Order, micro: Ints, units: _Units) -> _Followed:
    reductions, held = given.reductions.take(rows), order.held
    if reductions.paces.differ.any() or (given.work.model.tied and order.joins_ends):
        # ranks that hold alike take differently long: every piece by itself
        order = replace(order, pieces=order.pieces[order.piece], piece=np.arange(len(order.piece)))
        dense, expert = given.gathers.take(rows).rates
        reduced, gathered = (_on_ranks(given, rows, order, rates) for rates in (reductions.rates, (dense, expert)))
        needed = _of_pieces(reduced, held)
    else:
        needed = order.pieces @ units.reduced
        reduced, gathered = needed[order.piece[held]], (order.pieces @ units.gathered)[order.piece[held]]
    kinds = _lengths(order.pieces, units, reductions, needed)
    transfers = given.transfers.take(rows)
    lengths = Lengths(kinds, order.piece, transfers.stopped, transfers.under_way)
    pipelines = Pipelines(order.schedule, order.pp, order.vpp, micro, lengths)
    return _Followed(rows, pipelines, reduced, gathered, kinds[0][order.piece[held]])


def _on_ranks(given: MicroBatch, rows: Ints, order: _Order, rates: tuple[Numbers, Numbers]) -> Cube:
    """Seconds of what replicas send each other, before any overlap: ranks x chunks x policies, each rank at the pace of
    its groups."""
    work, held, paces = given.work, order.held, given.reductions.paces.take(rows).of_stages(len(order.held))

    def seconds(*, together: bool) -> Cube:
        parts = seconds_of_parts(rates, work, rows, together=together)
        of_ranks = [
            (order.pieces @ np.stack(part))[held] * pace.T[:, None] for part, pace in zip(parts, paces, strict=True)
        ]
        return np.asarray(of_ranks[0] + of_ranks[1])

    found = seconds(together=False)
    if not work.model.tied or not order.joins_ends:
        return found
    # a rank that holds both ends has their table once, and each of its two pieces adds to it
    more = found.sum(axis=1, keepdims=True)
    once = seconds(together=True).sum(axis=1, keepdims=True)
    return np.asarray(found * np.divide(once, more, out=np.ones_like(more), where=more > 0.0))


def _of_pieces(needed: Cube, held: Ints) -> Cube:
    """The slower where two ranks hold a piece."""
    found = np.zeros((int(held.max()) + 1, needed.shape[2]))
    for chunk, seconds in zip(held.T, np.moveaxis(needed, 1, 0), strict=True):
        found[chunk] = np.maximum(found[chunk], seconds)
    return found


def _lengths(pieces: Grid, units: _Units, reductions: Reductions, needed: Grid) -> Cube:
    """Kinds of task x pieces x policies."""
    forward, total, inputs, weight = (
        pieces @ each for each in (units.forward, units.total, units.inputs, units.weight)
    )
    if units.copied is not None:
        copied = 0.5 * (pieces[:, : len(units.copied)] @ units.copied)
        total = np.maximum(forward, copied) + np.maximum(total - forward, copied)
        forward, inputs = np.maximum(forward, copied), np.maximum(inputs, copied)
    whole, apart = (back + reductions.beside(needed.T, back.T).T for back in (total - forward, weight))
    return np.stack([forward, whole, inputs, apart])


def _in_turn(by: Cube, *others: Cube, descending: bool = False) -> tuple[Cube, ...]:
    """Chunks of each rank in the order of the first of these. Nearly always all policies have the first one's."""
    if by.shape[1] == 1:
        return by, *others
    key = -by if descending else by
    turn, ranks = np.argsort(key[:, :, 0], axis=1), np.arange(len(by))[:, None]
    if (np.diff(key[ranks, turn], axis=1) >= 0.0).all():
        return tuple(each[ranks, turn] for each in (by, *others))
    each_turn = np.argsort(key, axis=1)
    return tuple(np.take_along_axis(each, each_turn, axis=1) for each in (by, *others))


def _gathered_before(ends: Ends, needed: Cube, under: Cube, overlaps: NDArray[np.bool_], slowdown: float) -> Numbers:
    """Seconds by which the pipeline is late: parameters come chunk by chunk from the step's start on, and a chunk whose
    turn comes later has longer to wait for its own. Where nothing overlaps, all are there before the first."""
    begin, seconds, beside = _in_turn(ends.begin, needed, under)
    there = np.cumsum(seconds, axis=1)
    release = np.where(overlaps, there - (1.0 - slowdown) * beside, there[:, -1:])
    return np.asarray(np.maximum((release - begin).max(axis=(0, 1)), 0.0))


def _reduced_behind(ends: Ends, needed: Cube, reductions: Reductions) -> Numbers:
    """Seconds from the pipeline's end until the last rank has reduced its gradients, chunk by chunk, each from the task
    on that finishes it. Beside compute a reduction runs at the pace at which it may hide; while its rank is idle at its
    own, and so does what cannot hide. Nothing where each micro-batch reduces."""
    if reductions.each.all():
        return np.zeros(needed.shape[2])
    before, busy, seconds = _in_turn(ends.ready, ends.still_busy, needed, descending=True)
    total, share = seconds.sum(axis=1), reductions.hidden
    hiding, waiting = np.zeros_like(total), np.zeros_like(total)
    for chunk in range(seconds.shape[1]):
        last = chunk == seconds.shape[1] - 1
        window, work = (x[:, chunk] - (0.0 if last else x[:, chunk + 1]) for x in (before, busy))
        idle = window - work
        hiding, waiting = hiding + share * seconds[:, chunk], waiting + (1.0 - share) * seconds[:, chunk]
        room = share * work + idle
        done = np.minimum(hiding, room)
        used = np.divide(done, room, out=np.ones_like(done), where=room > 0.0)
        hiding, waiting = hiding - done, np.maximum(waiting - (1.0 - used) * idle, 0.0)
    late = np.where(share > 0.0, hiding + waiting, total)
    late = late + reductions.slowdown * (total - late)
    behind = (late + ends.last - ends.last.max(axis=0)).max(axis=0)
    return np.where(reductions.each, 0.0, np.maximum(behind, 0.0))
