"""What happened when, on which rank: a table of spans and of memory steps, simulated or measured."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shardwise.arrays import Floats, Ints

LANES = ("compute", "pp", "tp", "cp", "ep", "fsdp", "grad", "param", "copy")
"""streams of a rank: kernels, one for each kind of communication, copies to the host"""
KINDS = (
    "forward", "backward", "input gradient", "weight gradient", "send", "collective", "reduce", "gather", "copy",
    "optimizer", "other", "recompute",
)  # fmt: skip
"""a recompute lies inside its backward or input gradient: from the same start on, on the same lane"""
PIPELINE = frozenset({"forward", "backward", "input gradient", "weight gradient"})
MEMORY = ("parameters", "gradients", "optimizer", "activations", "logits", "gathered", "working", "buffers", "overhead")


@dataclass(frozen=True)
class Spans:
    """One row per span; lane and kind are positions in LANES and KINDS, -1 means none."""

    rank: Ints
    lane: Ints
    kind: Ints
    micro_batch: Ints
    chunk: Ints
    start_s: Floats
    end_s: Floats
    bytes: Floats
    peer: Ints
    """the rank a send goes to"""

    def __len__(self) -> int:
        return len(self.rank)

    def of(self, lane: str) -> NDArray[np.bool_]:
        return np.asarray(self.lane == LANES.index(lane))

    @property
    def piped(self) -> NDArray[np.bool_]:
        """Forwards and backwards: what a pipeline is made of."""
        codes = [KINDS.index(kind) for kind in PIPELINE]
        return np.isin(self.kind, codes) & self.of("compute")


@dataclass(frozen=True)
class MemorySteps:
    """Changes of memory: from `time_s` on, `bytes` more (or fewer) of a kind on a rank."""

    rank: Ints
    time_s: Floats
    kind: Ints
    """position in MEMORY"""
    bytes: Floats


@dataclass(frozen=True)
class Peak:
    time_s: float
    bytes: float
    kinds: dict[str, float]


@dataclass(frozen=True)
class Timeline:
    """A rank here is a class of GPUs that do the same at the same time; `gpus` says how many stand behind each."""

    spans: Spans
    memory: MemorySteps
    stage: Ints
    """pipeline stage of each rank"""
    gpus: Ints
    step_s: float

    @property
    def ranks(self) -> int:
        return len(self.stage)

    def busy_s(self) -> Floats:
        """Seconds of forwards and backwards on each rank."""
        spans = self.spans
        chosen = spans.piped
        length = (spans.end_s - spans.start_s)[chosen]
        return np.asarray(np.bincount(spans.rank[chosen], weights=length, minlength=self.ranks))

    def busy_share(self) -> Floats:
        return np.asarray(self.busy_s() / self.step_s)

    def pipeline_s(self) -> float:
        """From the first forward's start to the last backward's end."""
        chosen = self.spans.piped
        return float(self.spans.end_s[chosen].max() - self.spans.start_s[chosen].min())

    def bubble_share(self) -> float:
        """Share of the step in which the busiest GPU waits for other stages: it neither computes nor stands still for
        what it sends."""
        return float((self.pipeline_s() - self.busy_s().max()) / self.step_s)

    def idle_share(self) -> float:
        """The same of an average GPU, which also waits for those that have more to do."""
        idle = self.pipeline_s() - self.busy_s()
        return float((idle * self.gpus).sum() / self.gpus.sum() / self.step_s)

    def active(self, slices: int) -> Floats:
        """Share of the GPUs that compute, in each of so many equal parts of the pipeline's time."""
        spans = self.spans
        chosen = spans.piped
        begin, span = float(spans.start_s[chosen].min()), self.pipeline_s()
        edges = begin + span * np.arange(slices + 1) / slices
        weight = (self.gpus / self.gpus.sum())[spans.rank[chosen]]
        covered = _covered(spans.start_s[chosen], edges, weight) - _covered(spans.end_s[chosen], edges, weight)
        return np.asarray(np.diff(covered) * slices / span)

    def peaks(self) -> list[Peak]:
        """The fullest moment of each rank, by kind."""
        return [self._peak(rank) for rank in range(self.ranks)]

    def levels(self, rank: int) -> tuple[Floats, Floats]:
        """(times, bytes by kind at each): memory of one rank over time."""
        steps = self.memory
        mine = np.flatnonzero(steps.rank == rank)
        if not len(mine):
            return np.zeros(1), np.zeros((1, len(MEMORY)))
        # what is freed at the same moment leaves before something new comes
        mine = mine[np.lexsort((steps.bytes[mine], steps.time_s[mine]))]
        table = np.zeros((len(mine), len(MEMORY)))
        table[np.arange(len(mine)), steps.kind[mine]] = steps.bytes[mine]
        return steps.time_s[mine], np.cumsum(table, axis=0)

    def _peak(self, rank: int) -> Peak:
        times, levels = self.levels(rank)
        total = levels.sum(axis=1)
        at = int(np.argmax(total))
        kinds = {kind: float(size) for kind, size in zip(MEMORY, levels[at], strict=True)}
        return Peak(time_s=float(times[at]), bytes=float(total[at]), kinds=kinds)


def _covered(moments: Floats, edges: Floats, weight: Floats) -> Floats:
    """Weighted seconds between each moment and each edge behind it, added up."""
    order = np.argsort(moments, kind="stable")
    moments, weight = moments[order], weight[order]
    before = np.searchsorted(moments, edges, side="right")
    total, first = np.concatenate([[0.0], np.cumsum(weight)]), np.concatenate([[0.0], np.cumsum(weight * moments)])
    return np.asarray(edges * total[before] - first[before])
