"""When a pipeline ends whose backwards are whole and whose chunks are alike: the longest of a few ways through it."""

from functools import partial

import numpy as np
from numpy.typing import NDArray

from shardwise.arrays import Ints
from shardwise.plugins.schedules import used
from shardwise.step.estimate.pipeline.copies import ends_outlasted
from shardwise.step.estimate.pipeline.micro_batch import (
    MicroBatch,
    piles_up,
    reduced_pieces,
    seconds_of_parts,
    unit_counts,
)
from shardwise.work import Work
from shardwise.work.layout import Numbers
from shardwise.work.stages import Grid, largest, layers_before


def ends_by_law(given: MicroBatch, slowest: Ints) -> tuple[Numbers, Grid, Grid]:
    """(end of one pass through the pipeline, how much later than the first each evaluated stage starts, how much sooner
    it ends)."""
    layout, index = given.work.layout, given.work.stages.index
    pp, vpp, load, transfers = layout.pp, layout.vpp, given.stage.load, given.transfers
    everything, forwards = _all_stages(given)
    end = layout.in_pass * load[np.arange(len(slowest)), slowest]
    chunked, piled = vpp > 1, piles_up(given.work)
    one = (pp > 1) & ~chunked
    # where waiting for a message takes longer than the head's products, the last stage is not the busiest of its kind
    waits = transfers.stopped > given.units[-1].total
    sending, looped = partial(_looped, sender=True), one & ~piled
    for where, law in (
        (chunked, _chunked),
        (looped & ~waits, _looped),
        (looped & waits, sending),
        (one & piled, _piled),
    ):
        rows = np.flatnonzero(where)
        if len(rows):
            end[rows] = law(given, rows, slowest[rows], everything[rows])
    late = transfers.under_way
    ahead, back = forwards / (pp * vpp) + late, (everything - forwards) / (pp * vpp) + late
    starts, ends = index * ahead[:, None], index * back[:, None]
    rows = np.flatnonzero(one)
    if len(rows):
        # the last micro-batch's backward is on each of the stages before, alone, as the first one's forward was
        forward, backward = _before(given, rows, index[rows])
        starts[rows], ends[rows] = (each + index[rows] * late[rows, None] for each in (forward, backward))
    return end, starts, ends


def gathered_before_chunks(given: MicroBatch, gather: Grid, starts: Grid, rows: Ints) -> Numbers:
    """Seconds by which the pipeline is late where stages gather parameters chunk by chunk, each beside its own first
    forward: chunks have their turn as far apart as micro-batches take that pass one before the next, so the first or
    the last is the latest. `gather`: of all chunks on each evaluated stage, before any overlap."""
    work, stages = given.work, given.work.stages.take(rows)
    pp, vpp, micro = (x[rows, None] for x in (work.layout.pp, work.layout.vpp, work.layout.in_pass))
    parts = zip(*seconds_of_parts(given.gathers.take(rows).rates, work, rows), strict=True)
    *_, embedding, head = ((dense + expert)[:, None] for dense, expert in parts)
    read, predict = (seconds[:, None] for seconds in given.of_units("forward", rows)[-2:])
    gather, starts = gather.take(rows, axis=0), starts.take(rows, axis=0)
    chunk = (gather - stages.first * embedding - stages.last * head) / vpp
    forward = (given.forward(rows) - stages.first * read - stages.last * predict) / vpp
    hides = (1.0 - given.reductions.slowdown) * given.gathers.hidden[rows, None]

    def late(there: Grid, own: Grid, beside: Grid, turn: Grid) -> Grid:
        return there - hides * np.minimum(own, beside) - turn

    first = chunk + stages.first * embedding
    between = np.where(piles_up(work)[rows, None], np.maximum(micro, pp), pp)
    turn = starts + (vpp - 1.0) * between * forward
    ways = (
        late(first, first, forward + stages.first * read, starts),
        late(gather, chunk + stages.last * head, forward + stages.last * predict, turn),
    )
    return np.maximum(largest(np.maximum(*ways))[0], 0.0)


def _idle(work: Work, rows: Ints) -> Numbers:
    """How many other stages a micro-batch passes while one waits."""
    layout, codes = work.layout, work.layout.policies.schedule[rows]
    pp, vpp, micro = layout.pp[rows], layout.vpp[rows], layout.in_pass[rows]
    idle = np.zeros_like(pp)
    for code, schedule in used(codes):
        idle = np.where(codes == code, schedule.idle(pp, vpp, micro), idle)
    return idle


def _all_stages(given: MicroBatch) -> tuple[Numbers, Numbers]:
    """One micro-batch through all stages, with what each stands still for; and the forward part of it."""
    layout = given.work.layout
    forward, back = _passed(given, slice(None), [np.full((1, 1), n) for n in unit_counts(given.work)])
    if given.copied_before:
        copied, copies = (seconds[:, -1:] for seconds in given.copied_before)
        forward, back = forward + copied, back + (copies - copied)
    sends = (layout.vpp * layout.pp - 1.0) * given.transfers.stopped
    return (forward + back)[:, 0] + 2.0 * sends, forward[:, 0] + sends


def _passed(given: MicroBatch, rows: Ints | slice, counts: list[Grid]) -> tuple[Grid, Grid]:
    """Forward and backward of so many units of each kind, with the reductions of each micro-batch."""
    used_units = list(zip(given.units, counts, strict=False))
    forward, total = (
        sum((n * getattr(unit, name)[rows][:, None] for unit, n in used_units), start=0.0 * counts[-1])
        for name in ("forward", "total")
    )
    back = total - forward
    reductions = given.reductions.take(rows)
    if reductions.each.any():
        of_parts = zip(counts, *reductions.of_parts(given.work, rows), strict=False)
        needed = sum((n * (dense + expert)[:, None] for n, dense, expert in of_parts), start=0.0 * counts[-1])
        back = back + reductions.beside(needed, back)
    return forward, back


def _chunked(given: MicroBatch, rows: Ints, slowest: Ints, everything: Numbers) -> Numbers:
    """Several chunks a rank: the busiest waits while a micro-batch passes the others as often as the schedule's law
    says, or the ends of the model hold up all."""
    layout, transfers = given.work.layout, given.transfers
    pp, vpp, micro = layout.pp[rows], layout.vpp[rows], layout.in_pass[rows]
    load, late = given.stage.load[rows, slowest], transfers.under_way[rows]
    piled = piles_up(given.work)[rows]
    each = np.where(piled, sum(halves(given, rows)), load) if piled.any() else load
    end = micro * each + _idle(given.work, rows) / (pp - 1.0) * np.maximum(everything - each, 0.0)
    end = np.maximum(end, _heavy_ends(given, rows, piled, everything))
    # each round of pp micro-batches comes back to the first stage just as it is done with them, so every further chunk
    # waits for a whole turn of messages
    turns = 2.0 * late * (pp * vpp - 1.0)
    end = end + (np.where(piled, _piled_turns(given, rows), turns) if piled.any() else turns)
    # messages that take longer than the slack between neighbours slow every turn: a micro-batch to the last rank and
    # back is 2 pp - 1 chunks' time, once around forwards or backwards that of pp. The first round is on its way for all
    # its messages already
    chunk = load / vpp
    ahead = given.forward_at(rows, slowest) / vpp + transfers.stopped[rows]
    loop = (pp * chunk + 2.0 * (pp - 1.0) * late) / (2.0 * pp - 1.0)
    slot = np.maximum(np.maximum(loop, late + np.maximum(ahead, chunk - ahead)), chunk)
    return np.asarray(end + np.where(piled, 0.0, np.maximum(micro - pp, 0.0) * vpp * (slot - chunk)))


def _heavy_ends(given: MicroBatch, rows: Ints, piled: NDArray[np.bool_], everything: Numbers) -> Numbers:
    """The way through the first and the last piece, which have more to do than others. A micro-batch waits at the first
    until its round is through, goes on to the last, and so back; between the first and the last round its rank is busy.
    Where all forwards come before the backwards, all micro-batches are one round."""
    layout, first_load, last_load = given.work.layout, given.stage.load[rows, 0], given.stage.load[rows, -1]
    pp, vpp, micro = layout.pp[rows], layout.vpp[rows], layout.in_pass[rows]
    embedding, head = given.units[-2].total[rows], given.units[-1].total[rows]
    if given.reductions.each[rows].any():
        inner, *ends = reduced_pieces(given.work, given.units, given.reductions.take(rows), rows)
        embedding, head = (of + (end - inner)[:, 0] for of, end in zip((embedding, head), ends, strict=True))
    if given.copy_s:
        first, last = ends_outlasted(given.work, given.units, given.copy_s)
        embedding, head = embedding + first[rows, 0], head + last[rows, -1]
    chunk = np.maximum((last_load - head) / vpp, 0.0)
    first, last = (first_load - embedding) / vpp + embedding, chunk + head
    more = np.maximum(micro - pp, 0.0)
    rounds = (np.minimum(micro, pp) - 1.0) * (last + np.maximum(first - chunk, 0.0))
    rounds = rounds + more * np.maximum(first_load, last_load)
    if piled.any():
        whole = (micro - 1.0) * last + np.maximum((micro - 1.0) * first - (pp - 1.0) * chunk, 0.0)
        rounds = np.where(piled, whole + (vpp - 2.0) * more * chunk, rounds)
    return np.asarray(everything + rounds)


def _piled(given: MicroBatch, rows: Ints, _slowest: Ints, everything: Numbers) -> Numbers:
    """All forwards, then all backwards: each half takes the slowest's for all micro-batches but one."""
    layout = given.work.layout
    late = 2.0 * (layout.pp[rows] - 1.0) * given.transfers.under_way[rows]
    return np.asarray(everything + late + (layout.in_pass[rows] - 1.0) * sum(halves(given, rows)))


def halves(given: MicroBatch, rows: Ints, longer: Numbers | float = 0.0) -> tuple[Numbers, Numbers]:
    """A micro-batch where all forwards come before the backwards: the slowest forward, and the slowest backward, which
    may be another stage's. `longer`: seconds that a sender waits besides for each message."""
    vpp, stages = given.work.layout.vpp[rows, None], given.work.stages.take(rows)
    outputs, gradients = vpp - stages.last, vpp - stages.first
    forward = given.forward(rows) + given.transfers.stopped[rows, None] * outputs
    back = given.stage.load.take(rows, axis=0) - forward
    more = np.reshape(longer, (-1, 1))
    return largest(forward + more * outputs)[0], largest(back + more * gradients)[0]


def _piled_turns(given: MicroBatch, rows: Ints) -> Numbers:
    """What messages under way add where all micro-batches pass a chunk before the next one begins: a stage waits for
    the first to come round only as long as the others do not keep it busy."""
    layout, late = given.work.layout, given.transfers.under_way[rows]
    pp, vpp, micro = layout.pp[rows], layout.vpp[rows], layout.in_pass[rows]
    found = 2.0 * (pp - 1.0) * late
    for half in halves(given, rows):
        chunk = half / vpp
        found = found + (vpp - 1.0) * np.maximum(pp * late - np.maximum(micro - pp, 0.0) * chunk, 0.0)
    return np.asarray(found)


def _looped(given: MicroBatch, rows: Ints, _slowest: Ints, everything: Numbers, *, sender: bool = False) -> Numbers:
    """One chunk a rank, forwards and backwards in turn behind a warm-up: the longest of some ways through each of the
    evaluated stages.

    A way comes down to the stage and at the end goes up again. Between, it stays there, or follows a micro-batch down
    to the last stage and back: the first, the last, both, or as many as can follow one another, a warm-up apart.
    """
    layout, transfers = given.work.layout, given.transfers
    index, load = given.work.stages.index.take(rows, axis=0), given.stage.load.take(rows, axis=0)
    pp, micro = layout.pp[rows, None], layout.in_pass[rows, None]
    forward = given.forward(rows) + transfers.stopped[rows, None] * (index < pp - 1.0)
    if sender:
        index, forward, load = _with_last_sender(given, rows, index, forward, load)
    late = 2.0 * transfers.under_way[rows, None]
    before, ahead = sum(_before(given, rows, index)) + index * late, _warm_up(given.work, rows, index)
    trip = everything[:, None] + (pp - 1.0) * late - before
    # a trip may stay a while at a stage further down: with its warm-up, or with the backwards that are left at the end
    down, up = (_from_here_on(ahead * x - (trip - load)) for x in (forward, load - forward))
    once = np.maximum(down + ahead * (load - forward), up + ahead * forward) + trip + (micro - 1.0 - ahead) * load
    longest = np.maximum(once, micro * load)
    most = np.floor((micro + ahead) / (ahead + 1.0))
    for trips in (np.minimum(most, 2.0), most):
        often = trips * trip + down + up + (micro + ahead - trips * (ahead + 1.0)) * load
        longest = np.where(trips >= 2.0, np.maximum(longest, often), longest)
    return largest(before + longest)[0]


def _with_last_sender(given: MicroBatch, rows: Ints, index: Grid, forward: Grid, load: Grid) -> tuple[Grid, Grid, Grid]:
    """With the stage before the last, which waits for an output and for a gradient where the last waits for one: of all
    stages that do, the one that runs least ahead."""
    last = given.work.layout.pp[rows, None] - 1.0
    there, behind = (_before(given, rows, stage) for stage in (last - 1.0, last))
    its = [more - less for more, less in zip(behind, there, strict=True)]
    found = [np.hstack(pair) for pair in ((index, last - 1.0), (forward, its[0]), (load, its[0] + its[1]))]
    along = np.argsort(found[0], axis=1, kind="stable")
    index, forward, load = (np.take_along_axis(each, along, axis=1) for each in found)
    return index, forward, load


def _from_here_on(grid: Grid) -> Grid:
    """The most of each stage and those behind it, at least 0."""
    return np.asarray(np.maximum(np.maximum.accumulate(grid[:, ::-1], axis=1)[:, ::-1], 0.0))


def _before(given: MicroBatch, rows: Ints, index: Grid) -> tuple[Grid, Grid]:
    """One micro-batch's forward and its backward on all stages before each of these, with what they stand still for."""
    work, layout = given.work, given.work.layout
    layers = layers_before(
        work.model, work.stack.abilities.stage_split, index, layout.pp[rows, None], layout.vpp[rows, None]
    )
    forward, back = _passed(given, rows, [*layers, (index > 0).astype(np.float64)])
    if given.copied_before:
        copied, copies = (seconds[rows[:, None], index.astype(np.int64)] for seconds in given.copied_before)
        forward, back = forward + copied, back + (copies - copied)
    stopped = given.transfers.stopped[rows, None]
    return forward + stopped * index, back + stopped * np.maximum(index - 1.0, 0.0)


def _warm_up(work: Work, rows: Ints, index: Grid) -> Grid:
    """Forwards of each of these stages before its first backward, without the one that belongs to it."""
    layout, codes = work.layout, work.layout.policies.schedule[rows]
    found = np.zeros_like(index)
    pp, vpp, micro = (x[rows, None] for x in (layout.pp, layout.vpp, layout.in_pass))
    for code, schedule in used(codes):
        here = (codes == code)[:, None]
        found = np.where(here, schedule.in_flight(index, pp, vpp, micro) - 1.0, found)
    return found
