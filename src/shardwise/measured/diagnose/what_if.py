"""Which suspect slows a pipelined run? The recorded pieces of its workers are simulated again without each of them.

Pieces (forwards and backwards of micro-batches) are tasks on the lanes of the project's own engine, in the order they
ran; replicas of the pipeline meet at the end of a step. What nobody can be blamed for is that all pieces of one kind
take as long: the ideal. A suspect's share is what of the distance to it goes away when only its pieces are made so.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from shardwise.arrays import Floats
from shardwise.measured.diagnose.causes import Cause
from shardwise.step.tasks.engine import Tasks, again

EXPLAINS = 0.5
"""of the loss, before a suspect is named"""
SLOW = 1.05
"""times the ideal step: below, nothing is looked for"""
TOGETHER = 0.8
"""correlation of forward and backward of the same micro-batch: long sequences are slow in both"""
FORWARD, BACKWARD = 0, 1

Piece = tuple[int, int, int]
"""forward or backward, chunk of the model, micro-batch"""


@dataclass(frozen=True)
class PipelineTrace:
    """Of every worker (replica, stage) and step."""

    order: tuple[tuple[Piece, ...], ...]
    """of each stage, as its pieces ran"""
    seconds: Floats
    """pieces (stage by stage, in their order) x replicas x steps"""
    hop_s: float
    """one transfer between stages, once both are ready"""
    after_s: float
    """reduction and optimizer after the last backward, once all are ready"""
    ranks: tuple[tuple[int, ...], ...] = ()
    """global rank of each replica (rows) and stage (columns)"""

    @property
    def stages(self) -> int:
        return len(self.order)

    @cached_property
    def pieces(self) -> list[tuple[int, Piece]]:
        """With the stage of each."""
        return [(stage, piece) for stage, pieces in enumerate(self.order) for piece in pieces]

    @cached_property
    def tasks(self) -> Tasks:
        number = {piece: place for place, (_, piece) in enumerate(self.pieces)}
        last = max(chunk for _, (_, chunk, _) in self.pieces)
        needs: list[list[int]] = []
        for _, (kind, chunk, micro) in self.pieces:
            before = (kind, chunk - 1, micro) if kind == FORWARD else (kind, chunk + 1, micro)
            if kind == BACKWARD and chunk == last:
                before = (FORWARD, chunk, micro)
            needs.append([number[before]] if before in number else [])
        return Tasks.of([len(pieces) for pieces in self.order], needs)

    def step_s(self, seconds: Floats) -> float:
        """Mean time of a step with pieces of such lengths."""
        tasks = self.tasks
        delay = np.full(len(tasks.need_task), self.hop_s)
        release = np.zeros(len(tasks))
        columns = seconds.reshape(len(tasks), -1)
        ends = again(tasks, columns, delay, release).reshape(seconds.shape)
        return float(ends.max(axis=(0, 1)).mean()) + self.after_s

    @cached_property
    def ideal(self) -> Floats:
        """Every forward as long as the mean forward, every backward as the mean backward."""
        kinds = np.array([piece[0] for _, piece in self.pieces])
        found = np.empty_like(self.seconds)
        for kind in (FORWARD, BACKWARD):
            found[kinds == kind] = self.seconds[kinds == kind].mean()
        return found


@dataclass(frozen=True)
class Suspect:
    code: str
    where: str
    rank: int | None
    without_s: float
    """the step if it were like the others"""
    share: float
    """of the loss that goes away"""


@dataclass(frozen=True)
class WhatIf:
    step_s: float
    ideal_s: float
    suspects: tuple[Suspect, ...]
    """the one that explains most first"""
    together: float
    """correlation of forward and backward times of the same micro-batch"""

    @property
    def slowdown(self) -> float:
        return self.step_s / self.ideal_s

    @property
    def cause(self) -> Cause | None:
        """None where the run is even, or no suspect explains half of it."""
        if self.slowdown < SLOW or not self.suspects or self.suspects[0].share < EXPLAINS:
            return None
        first = self.suspects[0]
        others = ", ".join(f"{each.where} {each.share:.0%}" for each in self.suspects[1:3])
        return Cause(
            code=first.code, seconds=self.step_s - first.without_s, where=first.where, rank=first.rank,
            evidence=f"the step is {self.slowdown:.2f} times that of equal pieces; simulated again without "
            f"{first.where} it takes {first.without_s:,.3g} s, not {self.step_s:,.3g}: {first.share:.0%} of the loss"
            + (f" (of others: {others})" if others else ""),
        )  # fmt: skip


Tried = Callable[..., Suspect]


def what_if(trace: PipelineTrace) -> WhatIf:
    whole, ideal = trace.step_s(trace.seconds), trace.step_s(trace.ideal)
    lost = max(whole - ideal, 1e-12)

    def tried(code: str, where: str, seconds: Floats, rank: int | None = None) -> Suspect:
        without = trace.step_s(seconds)
        return Suspect(code, where, rank, without, (whole - without) / lost)

    together = forward_and_backward(trace)
    found = [_worst_worker(trace, tried), *_stages(trace, tried)]
    if together >= TOGETHER:
        found.append(tried("sequence", "uneven sequences", _even_sequences(trace)))
    return WhatIf(whole, ideal, tuple(sorted(found, key=lambda each: -each.share)), together)


def _worst_worker(trace: PipelineTrace, tried: Tried) -> Suspect:
    """The worker whose pieces are longest beside those of the same stage in other replicas."""
    stages = np.array([stage for stage, _ in trace.pieces])
    replicas = trace.seconds.shape[1]
    sums = np.array([trace.seconds[stages == stage].sum(axis=(0, 2)) for stage in range(trace.stages)])
    beside = sums / np.median(sums, axis=1, keepdims=True) if replicas > 1 else sums / np.median(sums)
    stage, replica = (int(place) for place in np.unravel_index(int(np.argmax(beside)), beside.shape))
    rows = stages == stage
    seconds = trace.seconds.copy()
    seconds[rows, replica] = _at_level(trace, rows, replica)
    rank = trace.ranks[replica][stage] if trace.ranks else None
    name = f"rank {rank}" if rank is not None else f"replica {replica}, stage {stage}"
    return tried("straggler", name, seconds, rank)


def _stages(trace: PipelineTrace, tried: Tried) -> list[Suspect]:
    """The slowest stage: all its replicas."""
    if trace.stages < 2:
        return []
    stages = np.array([stage for stage, _ in trace.pieces])
    means = [float(np.median(trace.seconds[stages == stage].sum(axis=0))) for stage in range(trace.stages)]
    stage = int(np.argmax(means))
    rows = stages == stage
    seconds = trace.seconds.copy()
    seconds[rows] = _at_level(trace, rows, slice(None))
    name = "the last stage" if stage == trace.stages - 1 else f"stage {stage}"
    return [tried("slow_stage", name, seconds)]


def _at_level(trace: PipelineTrace, rows: NDArray[np.bool_], replica: int | slice) -> Floats:
    """These pieces with the ideal mean, kind by kind; how they differ from each other stays, which is no worker's and
    no stage's doing."""
    found = trace.seconds[rows, replica].copy()
    kinds = np.array([piece[0] for _, piece in trace.pieces])[rows]
    for kind in (FORWARD, BACKWARD):
        mean = found[kinds == kind].mean()
        if mean > 0:
            found[kinds == kind] *= trace.ideal[rows][kinds == kind].flat[0] / mean
    return found


def _even_sequences(trace: PipelineTrace) -> Floats:
    """Workers stay as unequal as they are, but each has pieces of one length."""
    seconds = trace.seconds.copy()
    keys = [(stage, piece[0]) for stage, piece in trace.pieces]
    for key in set(keys):
        rows = [place for place, each in enumerate(keys) if each == key]
        seconds[rows] = trace.seconds[rows].mean(axis=(0, 2), keepdims=True)
    return seconds


def forward_and_backward(trace: PipelineTrace) -> float:
    """Of the same micro-batch, each beside the mean of its stage and worker: how far they rise and fall together."""
    number = {(stage, piece): place for place, (stage, piece) in enumerate(trace.pieces)}
    pairs = [(place, number[stage, (BACKWARD, *piece[1:])]) for (stage, piece), place in number.items()
             if piece[0] == FORWARD and (stage, (BACKWARD, *piece[1:])) in number]  # fmt: skip
    if len(pairs) < 2:
        return 0.0
    stages = np.array([trace.pieces[first][0] for first, _ in pairs])
    one = trace.seconds[[first for first, _ in pairs]]
    two = trace.seconds[[second for _, second in pairs]]
    for stage in range(trace.stages):
        rows = stages == stage
        # a worker that is slow in both is no sequence: what is left is micro-batch by micro-batch
        one[rows] -= one[rows].mean(axis=(0, 2), keepdims=True)
        two[rows] -= two[rows].mean(axis=(0, 2), keepdims=True)
    spread = float(np.sqrt((one**2).sum() * (two**2).sum()))
    return float((one * two).sum() / spread) if spread > 0 else 0.0
