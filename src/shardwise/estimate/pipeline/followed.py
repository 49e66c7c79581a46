"""Pipelines whose schedule's order is followed task by task, because no law tells how they wait."""

from collections.abc import Iterator
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from shardwise.estimate.pipeline.micro_batch import (
    MicroBatch,
    Reductions,
    runs_ahead,
    seconds_of_parts,
    splits_backward,
)
from shardwise.schedules import held_pieces, schedules
from shardwise.spec.model import Model
from shardwise.spec.pipeline import schedule_names
from shardwise.tasks.engine import Ints
from shardwise.tasks.longest import Ends, Lengths, pipeline_ends
from shardwise.work.layout import Numbers
from shardwise.work.pieces import piece_kinds
from shardwise.work.stages import Grid, rank_layers

Cube = NDArray[np.float64]
"""the last axis are policies"""


def followed_rows(given: MicroBatch) -> Ints:
    """Where the backward is split, where stages run far ahead or chunks are not alike, and where each micro-batch
    reduces its gradients while chunks hold different amounts of them or stages reduce at different paces."""
    work, reductions = given.work, given.reductions
    policies, model, split = work.layout.policies, work.model, work.stack.abilities.stage_split
    chunked = policies.vpp > 1
    sure = splits_backward(work) | runs_ahead(work) | (reductions.each & (chunked | reductions.paces.differ))
    if len(model.kinds) == 1 and split == "even" and not model.mtp_layers:
        chunked &= model.layers % (policies.pp * policies.vpp) != 0
    rows = np.flatnonzero((policies.pp > 1) & chunked & ~sure)
    keys = np.stack([policies.schedule[rows], policies.pp[rows], policies.vpp[rows]], axis=1)
    distinct, place = np.unique(keys, axis=0, return_inverse=True)
    unlike = [_unlike(model, split, schedule_names()[code], pp, vpp) for code, pp, vpp in distinct.tolist()]
    sure[rows] = np.array(unlike, dtype=np.bool_)[place.reshape(-1)]
    return np.flatnonzero(sure & (policies.pp > 1))


@lru_cache(maxsize=4096)
def _unlike(model: Model, split: str, name: str, pp: int, vpp: int) -> bool:
    return len({tuple(row) for row in _pieces(model, split, name, pp, vpp)[:, :-2].tolist()}) > 1


@lru_cache(maxsize=4096)
def _pieces(model: Model, split: str, name: str, pp: int, vpp: int) -> Grid:
    """Pieces of the model x units: layers of each kind, the embedding, the head."""
    layers = np.array(rank_layers(model, split, pp, vpp), dtype=np.int64)
    kinds = piece_kinds(model, held_pieces(name, pp, vpp), layers)
    ends = np.zeros((len(kinds), 2))
    ends[0, 0] = ends[-1, 1] = 1.0
    return np.hstack([kinds, ends])


def follow(given: MicroBatch, rows: Ints) -> Iterator[tuple[Ints, Ends, Numbers, Numbers]]:
    """For policies that share a schedule and its stages: the ends of every rank, how long reductions go on behind the
    pipeline, and how much later it starts because of gathers."""
    work, layout, policies = given.work, given.work.layout, given.work.layout.policies
    micro = layout.micro_batches.astype(np.int64)
    keys = np.stack([policies.schedule, policies.pp, policies.vpp], axis=1)[rows]
    distinct, place = np.unique(keys, axis=0, return_inverse=True)
    for number, (code, pp, vpp) in enumerate(distinct.tolist()):
        name = schedule_names()[code]
        mine = _with_order(name, pp, vpp, rows[place.reshape(-1) == number], micro)
        if not len(mine):
            continue
        held = held_pieces(name, pp, vpp)
        pieces = _pieces(work.model, work.stack.abilities.stage_split, name, pp, vpp)
        reductions = given.reductions.take(mine)
        reduced = _on_ranks(given, mine, held, pieces, reductions.rates)
        table = _lengths(given, mine, pieces, reductions, _of_pieces(reduced, held))
        stopped, under_way = given.transfers.stopped[mine], given.transfers.under_way[mine]
        ends = pipeline_ends(name, pp, vpp, micro[mine], Lengths(table, stopped, under_way))
        dense, expert = given.gathers.rates
        gathered = _on_ranks(given, mine, held, pieces, (dense[mine], expert[mine]))
        under = given.gathers.hidden[mine] * np.minimum(gathered, table[0][held])
        late = _gathered_before(ends, gathered, under, given.gathers.hidden[mine] > 0.0, reductions.slowdown)
        yield mine, ends, _reduced_behind(ends, reduced, reductions), late


def _with_order(name: str, pp: int, vpp: int, rows: Ints, micro_batches: Ints) -> Ints:
    """Where there is such an order: measured runs that round their micro-batches keep the law."""
    asked = micro_batches[rows]
    none = [micro for micro in set(asked.tolist()) if schedules()[name].legal(pp, vpp, micro)]
    return rows[~np.isin(asked, none)] if none else rows


def _on_ranks(given: MicroBatch, rows: Ints, held: Ints, pieces: Grid, rates: tuple[Numbers, Numbers]) -> Cube:
    """Seconds of what replicas send each other, before any overlap: ranks x chunks x policies, each rank at the pace of
    its groups."""
    work, paces = given.work, given.reductions.paces.take(rows).of_stages(len(held))

    def seconds(*, together: bool) -> Cube:
        parts = seconds_of_parts(rates, work, rows, together=together)
        of_ranks = [(pieces @ np.stack(part))[held] * pace.T[:, None] for part, pace in zip(parts, paces, strict=True)]
        return np.asarray(of_ranks[0] + of_ranks[1])

    found = seconds(together=False)
    if not work.model.tied or not {0, len(pieces) - 1} <= set(held[0].tolist()):
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


def _lengths(given: MicroBatch, rows: Ints, pieces: Grid, reductions: Reductions, needed: Cube) -> Cube:
    """Kinds of task x pieces x policies."""
    forward, total, weight = (pieces @ np.stack(given.of_units(name, rows)) for name in ("forward", "total", "weight"))
    if given.copy_s:
        copied = pieces[:, : len(given.copy_s)] @ np.stack([seconds[rows] for seconds in given.copy_s])
        total = np.maximum(total, copied)
    whole, apart = (back + reductions.beside(needed.T, back.T).T for back in (total - forward, weight))
    return np.stack([forward, whole, total - forward - weight, apart])


def _gathered_before(ends: Ends, needed: Cube, under: Cube, overlaps: NDArray[np.bool_], slowdown: float) -> Numbers:
    """Seconds by which the pipeline is late: parameters come chunk by chunk from the step's start on, and a chunk whose
    turn comes later has longer to wait for its own. Where nothing overlaps, all are there before the first."""
    turn = np.argsort(ends.begin, axis=1)
    begin, seconds, beside = (np.take_along_axis(x, turn, axis=1) for x in (ends.begin, needed, under))
    there = np.cumsum(seconds, axis=1)
    release = np.where(overlaps, there - (1.0 - slowdown) * beside, there[:, -1:])
    return np.asarray(np.maximum((release - begin).max(axis=(0, 1)), 0.0))


def _reduced_behind(ends: Ends, needed: Cube, reductions: Reductions) -> Numbers:
    """Seconds from the pipeline's end until the last rank has reduced its gradients, chunk by chunk, each from the task
    on that finishes it. Beside compute a reduction runs at the pace at which it may hide; while its rank is idle at its
    own, and so does what cannot hide. Nothing where each micro-batch reduces."""
    if reductions.each.all():
        return np.zeros(needed.shape[2])
    turn = np.argsort(-ends.ready, axis=1)
    before, busy, seconds = (np.take_along_axis(x, turn, axis=1) for x in (ends.ready, ends.still_busy, needed))
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
