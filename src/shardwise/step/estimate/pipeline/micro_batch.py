"""What one micro-batch takes on each stage: compute, copies, reductions, and what the stage stands still for."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from shardwise.arrays import Ints
from shardwise.plugins.schedules import used
from shardwise.plugins.schedules._contract import Schedule, folded
from shardwise.step.estimate.exposure import Unit
from shardwise.step.estimate.pipeline.copies import before_each, copies_of
from shardwise.step.estimate.stage_groups import StagePaces
from shardwise.work import Work
from shardwise.work.layout import Numbers
from shardwise.work.runs import Runs, alone
from shardwise.work.stages import Grid, totals


@dataclass(frozen=True)
class Transfers:
    """One activation or gradient from a stage to the next."""

    seconds: Numbers
    exposed: Numbers
    """share of it that its sender waits for"""
    meets: Numbers
    """1 where outputs and gradients leave by the same card, each when what makes it is done; else 0"""

    def crowded(self, chunk: Numbers) -> "Transfers":
        """An output that has not left when the next gradient goes shares the card with it until both have. `chunk`: a
        forward and its backward of layers alone, in the mean, for a rank with an end of the model sends one of the two
        there; the forward, after which a gradient waits, is a third."""
        share = np.divide(chunk / 3.0, self.seconds, out=np.ones_like(self.seconds), where=self.seconds > 0.0)
        longer = 1.0 + self.meets * np.maximum(1.0 - share, 0.0)
        return Transfers(self.seconds * longer, self.exposed, self.meets)

    def take(self, rows: Ints | slice) -> "Transfers":
        return Transfers(self.seconds[rows], self.exposed[rows], self.meets[rows])

    def spread(self, runs: Runs) -> "Transfers":
        """From one per run of policies to one per policy."""
        return Transfers(runs.rows(self.seconds), runs.rows(self.exposed), runs.rows(self.meets))

    @property
    def stopped(self) -> Numbers:
        return self.seconds * self.exposed

    @property
    def under_way(self) -> Numbers:
        """What is left of it when the sender goes on."""
        return self.seconds * (1.0 - self.exposed)


@dataclass(frozen=True)
class Reductions:
    """What gradients cost: beside compute at most a part of each reduction hides."""

    rates: tuple[Numbers, Numbers]
    """seconds per parameter, of one micro-batch where each reduces its own (ZeRO-2): dense, expert"""
    each: NDArray[np.bool_]
    """where that is"""
    hidden: Numbers
    """share that may hide"""
    slowdown: float
    """of what hides, compute takes that much longer"""
    paces: StagePaces
    """`rates` are those of the stage whose groups lie worst"""

    def beside(self, needed: Grid, window: Grid) -> Grid:
        """What each micro-batch takes longer, where each reduces: of so many seconds beside so much backward."""
        under = self.hidden[:, None] * np.minimum(needed, window)
        return np.where(self.each[:, None], needed - (1.0 - self.slowdown) * under, 0.0)

    def take(self, rows: Ints | slice) -> "Reductions":
        dense, expert = self.rates
        return Reductions(
            (dense[rows], expert[rows]), self.each[rows], self.hidden[rows], self.slowdown, self.paces.take(rows)
        )

    def of_parts(self, work: Work, rows: Ints | slice) -> tuple[list[Numbers], list[Numbers]]:
        """(of dense parameters, of experts): seconds, before any overlap, for a layer of each kind, the embedding and
        the head."""
        return seconds_of_parts(self.rates, work, rows)


@dataclass(frozen=True)
class GatherTimes:
    """What parameters cost that are gathered once, before their first forward or beside it."""

    rates: tuple[Numbers, Numbers]
    """seconds per parameter: dense, expert"""
    hidden: Numbers
    """share that may hide"""

    def take(self, rows: Ints | slice) -> "GatherTimes":
        return GatherTimes((self.rates[0][rows], self.rates[1][rows]), self.hidden[rows])


def seconds_of_parts(
    rates: tuple[Numbers, Numbers], work: Work, rows: Ints | slice, *, together: bool = False
) -> tuple[list[Numbers], list[Numbers]]:
    """(of dense parameters, of experts): for a layer of each kind, the embedding and the head, at so many seconds per
    parameter. `together`: of ranks that hold both ends, so tied weights once."""
    head = work.counts.head_alone if together else work.counts.head
    parts, frames = (*work.counts.kinds, work.counts.embedding, head), work.frames
    at = rows if work.runs.of is None else work.runs.of[rows]
    dense = [rates[0] * part.dense_per_rank(frames)[at] for part in parts]
    return dense, [rates[1] * part.expert_per_rank(frames)[at] for part in parts]


@dataclass(frozen=True)
class StageSeconds:
    """One micro-batch on each evaluated stage."""

    total: Grid
    copied: Grid
    """activations to the host, as far as that is slower than the forward"""
    copies: Grid
    """to the host and back, as far as that is slower than compute"""
    reduced: Grid
    """gradients that every micro-batch reduces (ZeRO-2), as far as that does not hide"""
    sends: Grid
    """the stage stands still for what it sends"""

    def spread(self, runs: Runs) -> "StageSeconds":
        """From one row per run of policies to one per policy."""
        if runs.of is None:
            return self
        return StageSeconds(*map(runs.rows, (self.total, self.copied, self.copies, self.reduced, self.sends)))

    @cached_property
    def load(self) -> Grid:
        return np.asarray(self.total + self.copies + self.reduced + self.sends)


@dataclass(frozen=True)
class MicroBatch:
    work: Work
    runs: Runs
    """of policies whose units take the same"""
    units: list[Unit]
    """of each run: one layer of each kind, the embedding, the head"""
    transfers: Transfers
    reductions: Reductions
    gathers: GatherTimes
    copy_s: list[Numbers]
    """a layer's activations to the host and back, by kind; empty where none go there"""
    stage: StageSeconds
    copied_before: tuple[Grid, Grid] | None = None
    """what forwards, and forwards with backwards, of all stages before each wait for copies, and last of all stages"""

    def spread(self, runs: Runs, work: Work, reductions: Reductions, gathers: GatherTimes) -> "MicroBatch":
        """From one policy of each run to all of them."""
        if runs.of is None:
            return self
        copies = [runs.rows(seconds) for seconds in self.copy_s]
        stage, transfers = self.stage.spread(runs), self.transfers.spread(runs)
        return MicroBatch(work, runs, self.units, transfers, reductions, gathers, copies, stage)

    def of_units(self, name: str, rows: Ints | slice) -> list[Numbers]:
        """Seconds of every unit, of these policies."""
        at = rows if self.runs.of is None else self.runs.of[rows]
        return [getattr(unit, name)[at] for unit in self.units]

    def forward(self, rows: Ints) -> Grid:
        """The part of `stage.total` and `stage.copies` that is forward, of these policies."""
        forward = weighted(self.of_units("forward", rows), stage_counts(self.work), rows)
        return np.asarray(forward + self.stage.copied.take(rows, axis=0))

    def forward_at(self, rows: Ints, column: Ints) -> Numbers:
        """The same on one evaluated stage of each of them."""
        units = zip(self.of_units("forward", rows), stage_counts(self.work), strict=True)
        return np.asarray(_sum(n[rows, column] * unit for unit, n in units) + self.stage.copied[rows, column])

    def last_back(self, forward: Grid) -> Grid:
        """The task under which the last gradients are reduced: a backward, or where it is split the weight gradient.
        `forward`: of all policies."""
        whole, split = self.stage.total + self.stage.copies - forward, splits_backward(self.work)[:, None]
        if not split.any():
            return whole
        rows = np.arange(len(split))
        return np.where(split, weighted(self.of_units("weight", rows), stage_counts(self.work), rows), whole)


def micro_batch_of(
    work: Work, units: list[Unit], transfers: Transfers, synced: tuple[Reductions, GatherTimes], reduce: Grid,
    copy_s: list[Numbers],
) -> MicroBatch:  # fmt: skip
    """`reduce`: seconds of a step's reduction on each evaluated stage, before any overlap."""
    counts, (reductions, gathers) = stage_counts(work), synced
    total = weighted([unit.total for unit in units], counts, slice(None))
    copied, copies, reduced = (np.zeros_like(total) for _ in range(3))
    layers, copied_before = zip(totals(work.model), units, strict=False), None
    passed = sum((n * unit.total for n, unit in layers), start=0.0 * work.layout.pp)
    if (own := copies_of(work, units, copy_s)) and (every := copies_of(work, units, copy_s, every=True)):
        copied, copies = own.forward, own.whole
        copied_before = before_each(every.forward, work.layout.pp), before_each(every.whole, work.layout.pp)
        passed = passed + copied_before[1][:, -1]
    rows = np.flatnonzero(reductions.each)
    if len(rows):
        needed = reduce.take(rows, axis=0) / work.layout.micro_batches[rows, None]
        forward, weight = (
            weighted([getattr(unit, name)[rows] for unit in units], counts, rows) for name in ("forward", "weight")
        )
        whole = (total + copies).take(rows, axis=0) - (forward + copied.take(rows, axis=0))
        window = np.where(splits_backward(work)[rows, None], weight, whole)
        reduced[rows] = reductions.take(rows).beside(needed, window)
        chunked = rows[work.layout.vpp[rows] > 1]
        if len(chunked):
            reduced[chunked] = _reduced_in_chunks(work, units, reductions.take(chunked), chunked)
    transfers = transfers.crowded(passed / (work.layout.pp * work.layout.vpp))
    stage = StageSeconds(total, copied, copies, reduced, _sends(work, transfers))
    return MicroBatch(work, alone(len(total)), units, transfers, reductions, gathers, copy_s, stage, copied_before)


def _reduced_in_chunks(work: Work, units: list[Unit], reductions: Reductions, rows: Ints) -> Grid:
    """What a micro-batch's reductions take longer on stages whose chunks are alike: each hides under its own backward,
    those of the embedding and the head under that of the chunk they are in."""
    stages, chunks = work.stages.take(rows), work.layout.vpp[rows, None]
    inner, first, last = reduced_pieces(work, units, reductions, rows)
    return (chunks - stages.first - stages.last) * inner + stages.first * first + stages.last * last


def reduced_pieces(work: Work, units: list[Unit], reductions: Reductions, rows: Ints) -> tuple[Grid, Grid, Grid]:
    """The same of one chunk of layers, of one with the embedding, of one with the head; one column each."""
    layers = [kind[rows, :1] / work.layout.vpp[rows, None] for kind in work.stages.kinds]
    needed = [(dense + expert)[:, None] for dense, expert in zip(*reductions.of_parts(work, rows), strict=True)]
    back = [(unit.total - unit.forward)[rows, None] for unit in units]
    of_layers = [_sum(n * seconds for n, seconds in zip(layers, each, strict=False)) for each in (needed, back)]
    inner = reductions.beside(*of_layers)
    first, last = (reductions.beside(of_layers[0] + needed[end], of_layers[1] + back[end]) for end in (-2, -1))
    return inner, first, last


def stage_counts(work: Work) -> list[Grid]:
    """How often each unit is on each evaluated stage."""
    return [*work.stages.kinds, work.stages.first, work.stages.last]


def unit_counts(work: Work) -> list[float]:
    """How often each unit is in the whole model."""
    return [*totals(work.model), 1.0, 1.0]


def weighted(seconds: list[Numbers], counts: list[Grid], rows: Ints | slice) -> Grid:
    """Seconds of so many units of these policies."""
    held = counts if isinstance(rows, slice) else [count.take(rows, axis=0) for count in counts]
    return _sum(n * unit[:, None] for unit, n in zip(seconds, held, strict=True))


def _sum(terms: Iterator[NDArray[np.float64]]) -> NDArray[np.float64]:
    total = next(terms)
    for term in terms:
        total = total + term
    return total


def _sends(work: Work, transfers: Transfers) -> Grid:
    """Output and gradient of each chunk. The model's first piece has nowhere to send a gradient, the last no output;
    where a V turns, two pieces are on one rank."""
    layout, stages = work.layout, work.stages
    messages = 2.0 * layout.vpp[:, None] - stages.first - stages.last
    for code, schedule in used(layout.policies.schedule):
        if schedule.stage is folded:
            turns = (stages.index == layout.pp[:, None] - 1.0) & (layout.policies.schedule == code)[:, None]
            messages = messages - 2.0 * turns
    return np.asarray(transfers.stopped[:, None] * messages)


def splits_backward(work: Work) -> NDArray[np.bool_]:
    return _where(work, lambda schedule: schedule.splits_backward)


def runs_ahead(work: Work) -> NDArray[np.bool_]:
    """Where a stage of one chunk starts more micro-batches before its first backward than there are stages behind."""

    def ahead(schedule: Schedule) -> bool:
        return schedule.chunks == "one" and not schedule.piles_up and bool(schedule.in_flight(0, 2, 1, 8) > 2)

    return _where(work, ahead)


def piles_up(work: Work) -> NDArray[np.bool_]:
    return _where(work, lambda schedule: schedule.piles_up)


def _where(work: Work, has: Callable[[Schedule], bool]) -> NDArray[np.bool_]:
    codes = work.layout.policies.schedule
    found = np.zeros(len(codes), dtype=np.bool_)
    for code, schedule in used(codes):
        if has(schedule):
            found |= codes == code
    return found
