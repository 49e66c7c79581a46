"""The problem every method solves: what each stage of a pipeline holds and where it runs.

A stage takes one option (a group of GPUs and a tensor-parallel degree on it) and a run of layers; together they settle
how many of those layers must recompute, since recomputing more than memory asks for only costs time. The step is the
closed form's: (m - k) times the slowest stage plus k times all of them, what happens once, and the stack's allowance.
"""

from dataclasses import dataclass
from math import comb

import numpy as np
from numpy.typing import NDArray

from shardwise.spec.policy import Policy

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Option:
    """One way to run a stage."""

    group: int
    """which group of GPUs"""
    cluster: str
    policy: Policy
    """degrees and micro-batch of a stage that takes this option; pp is the whole pipeline's"""
    limit_bytes: float
    once_s: float
    """once a step: transfers around the steady phase, synchronisation, optimizer"""


@dataclass(frozen=True)
class Assignment:
    layers: tuple[int, ...]
    recomputed: tuple[int, ...]
    """layers of each stage that are computed again in the backward"""
    options: tuple[int, ...]
    """which option each stage takes"""
    stage_s: tuple[float, ...]
    """one micro-batch, forward and backward"""
    peak_bytes: tuple[float, ...]


@dataclass(frozen=True)
class StageProblem:
    options: tuple[Option, ...]
    group_stages: tuple[int, ...]
    """how many stages each group of GPUs has to take; one or two groups"""
    pattern: tuple[int, ...]
    """the kind of each layer: runs with as many layers of each kind cost the same"""
    micro_batches: float
    share: float
    """k: idle time of the schedule over pp - 1, in micro-batches"""
    stretch: float
    """the stack's allowance for waiting, as a factor"""
    overhead_s: float
    seconds: Floats
    """options x stages x first layer x end: one micro-batch; infinite where memory does not suffice"""
    any_seconds: Floats
    """the same, also where memory does not suffice"""
    recomputed: Floats
    bytes: Floats
    even: tuple[tuple[int, ...], tuple[int, ...]]
    """layers as the stack deals them out, and the first option of each group, groups in order"""

    @property
    def stages(self) -> int:
        return int(self.seconds.shape[1])

    @property
    def layers(self) -> int:
        return len(self.pattern)

    @property
    def option_group(self) -> Ints:
        return np.array([option.group for option in self.options], dtype=np.int64)

    @property
    def once_s(self) -> Floats:
        return np.array([option.once_s for option in self.options])

    @property
    def fewest(self) -> Ints:
        """Layers a stage holds at least: only the ends, with the embedding or the head, may be without."""
        least = np.ones(self.stages, dtype=np.int64)
        least[[0, -1]] = 0 if self.stages > 1 else self.layers
        return least

    @property
    def points(self) -> int:
        """Assignments there are, fitting or not."""
        free = self.layers - int(self.fewest.sum())
        count = comb(free + self.stages - 1, self.stages - 1)
        if len(self.group_stages) > 1:
            count *= comb(self.stages, self.group_stages[0])
        for group, stages in enumerate(self.group_stages):
            count *= int((self.option_group == group).sum()) ** stages
        return count

    def step_s(self, slowest: float, total: float, once: float) -> float:
        """The step whose slowest stage, sum of stages and once-a-step part are these; bounds give a bound."""
        busy = (self.micro_batches - self.share) * slowest + self.share * total + once
        return self.stretch * busy + self.overhead_s

    def price(self, layers: Ints, options: Ints) -> tuple[Floats, Floats]:
        """Step time of many assignments, and by how much each breaks memory (0: it fits).

        Both arguments are assignments x stages. The second figure adds up what stages need beyond their limit, as a
        share of it, and 1 for each stage without a layer.
        """
        at = self._at(layers, options)
        stage = self.any_seconds[at]
        busy = (self.micro_batches - self.share) * stage.max(axis=1) + self.share * stage.sum(axis=1)
        steps = self.stretch * (busy + self.once_s[options].max(axis=1)) + self.overhead_s
        limit = np.array([option.limit_bytes for option in self.options])[options]
        over = np.maximum(self.bytes[at] / limit - 1.0, 0.0)
        short = ~np.isfinite(self.seconds[at])
        empty = (layers == 0) & (self.fewest > 0)
        # what a rounding hides must not count as fitting
        broken = np.where(short, np.maximum(over, 1e-9), 0.0) + empty
        return steps, broken.sum(axis=1)

    def assignment(self, layers: Ints, options: Ints) -> Assignment:
        at = self._at(layers[None], options[None])
        return Assignment(
            layers=tuple(layers.tolist()),
            recomputed=tuple(self.recomputed[at][0].astype(int).tolist()),
            options=tuple(options.tolist()),
            stage_s=tuple(self.any_seconds[at][0].tolist()),
            peak_bytes=tuple(self.bytes[at][0].tolist()),
        )

    def _at(self, layers: Ints, options: Ints) -> tuple[Ints, Ints, Ints, Ints]:
        end = np.cumsum(layers, axis=1)
        return options, np.broadcast_to(np.arange(self.stages), layers.shape), end - layers, end
