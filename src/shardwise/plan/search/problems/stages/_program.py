"""The stages of a pipeline as an integer program.

One yes-or-no variable says that a stage takes an option and a set of layers (so many of each kind); layers must add up,
and with several kinds the end of every stage must lie on the model's own order of them. One more variable is above
every stage, another above what each option costs once a step.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from shardwise.arrays import Floats, Ints
from shardwise.plan.search.problems._contract import NOTHING_FITS, IntegerProgram
from shardwise.plan.search.problems._rows import ProgramRows
from shardwise.plan.search.problems.stages._problem import StageProblem

ROUNDING = 1e-9


@dataclass(frozen=True)
class _Picks:
    """The yes-or-no variables: one entry each."""

    stage: Ints
    option: Ints
    counts: Ints
    """variables x kinds: layers of each kind"""
    seconds: Floats

    def where(self, kept: Any) -> "_Picks":
        return _Picks(self.stage[kept], self.option[kept], self.counts[kept], self.seconds[kept])


def stage_program(problem: StageProblem, best_s: float) -> IntegerProgram | str:
    prefix = _prefix(problem)
    picks = _picks(problem, prefix)
    if np.isfinite(best_s):
        picks = picks.where(_could_win(problem, picks, best_s))
    if not (_most_layers(problem, picks, np.inf) >= 0).all():
        return NOTHING_FITS
    model = _StageRows(problem, picks, prefix)
    model.one_set_each()
    model.layers_in_order()
    model.group_sizes()
    model.above_all()
    size, wide = len(picks.stage), model.width
    cost = np.zeros(wide)
    cost[:size] = problem.share * picks.seconds
    cost[wide - 2 :] = problem.micro_batches - problem.share, 1.0
    least, most = np.zeros(wide), np.ones(wide)
    least[wide - 2] = max(_slowest_at_least(problem, picks) * (1.0 - ROUNDING), problem.slowest_least_s)
    most[wide - 2 :] = np.inf
    whole = np.ones(wide, dtype=np.int64)
    whole[wide - 2 :] = 0

    def point(x: Floats) -> Ints:
        chosen = np.flatnonzero(x[:size] > 0.5)
        order = chosen[np.argsort(picks.stage[chosen])]
        return np.concatenate([picks.counts[order].sum(axis=1), picks.option[order]])

    def seconds(bound: float) -> float:
        return problem.stretch * bound + problem.overhead_s

    return model.program(cost, whole, least, most, point, seconds)


def _prefix(problem: StageProblem) -> Ints:
    """Layers of each kind before each layer."""
    pattern = np.array(problem.pattern)
    kinds = np.unique(pattern)
    return np.vstack([np.zeros(len(kinds), dtype=np.int64), np.cumsum(pattern[:, None] == kinds, axis=0)])


def _picks(problem: StageProblem, prefix: Ints) -> _Picks:
    low, high = np.triu_indices(problem.layers + 1)
    counts, first = np.unique(prefix[high] - prefix[low], axis=0, return_index=True)
    seconds = problem.seconds[:, :, low[first], high[first]]
    option, stage, run = np.nonzero(np.isfinite(seconds))
    return _Picks(stage, option, counts[run], seconds[option, stage, run])


def _could_win(problem: StageProblem, picks: _Picks, best: float) -> Any:
    """A stage so slow that it alone makes the step longer than the best can be left out."""
    once = float(problem.once_s.min())
    return np.array([problem.step_s(s, s, once) <= best for s in picks.seconds], dtype=np.bool_)


def _most_layers(problem: StageProblem, picks: _Picks, bound: float) -> Ints:
    """Layers each stage can hold within the bound; -1 where it can hold no set at all."""
    most = np.full(problem.stages, -1, dtype=np.int64)
    within = picks.seconds <= bound
    np.maximum.at(most, picks.stage[within], picks.counts[within].sum(axis=1))
    return most


def _slowest_at_least(problem: StageProblem, picks: _Picks) -> float:
    """A cut: below this the stages together cannot hold all layers, whichever groups they are on."""
    bounds = np.unique(picks.seconds)
    low, high = 0, len(bounds) - 1
    while low < high:
        middle = (low + high) // 2
        most = _most_layers(problem, picks, float(bounds[middle]))
        if (most >= 0).all() and most.sum() >= problem.layers:
            high = middle
        else:
            low = middle + 1
    return float(bounds[low])


class _StageRows(ProgramRows):
    """Columns: picks, ends of stages (with several kinds), slowest stage, once a step."""

    def __init__(self, problem: StageProblem, picks: _Picks, prefix: Ints) -> None:
        super().__init__()
        self.problem, self.picks, self.prefix = problem, picks, prefix
        self.ends = 0 if prefix.shape[1] == 1 else (problem.stages - 1) * len(prefix)
        self.width = len(picks.stage) + self.ends + 2

    def of(self, stage: int) -> Ints:
        return np.flatnonzero(self.picks.stage == stage)

    def end_of(self, stage: int) -> Ints:
        return len(self.picks.stage) + stage * len(self.prefix) + np.arange(len(self.prefix))

    def one_set_each(self) -> None:
        for stage in range(self.problem.stages):
            own = self.of(stage)
            self.row([(own, np.ones(len(own)))], 1, 1)
            if self.ends and stage < self.problem.stages - 1:
                self.row([(self.end_of(stage), np.ones(len(self.prefix)))], 1, 1)

    def layers_in_order(self) -> None:
        counts, last = self.picks.counts.astype(np.float64), self.problem.stages - 1
        if not self.ends:
            self.row([(np.arange(len(counts)), counts[:, 0])], self.problem.layers, self.problem.layers)
            return
        for stage in range(last + 1):
            own = self.of(stage)
            for kind in range(self.prefix.shape[1]):
                before = self.prefix[:, kind].astype(np.float64)
                entries = [(own, counts[own, kind])]
                entries += [(self.end_of(stage - 1), before)] if stage else []
                entries += [(self.end_of(stage), -before)] if stage < last else []
                whole = before[-1] if stage == last else 0.0
                self.row(entries, whole, whole)

    def group_sizes(self) -> None:
        group = self.problem.option_group[self.picks.option]
        for place, stages in enumerate(self.problem.group_stages[:-1]):
            own = np.flatnonzero(group == place)
            self.row([(own, np.ones(len(own)))], stages, stages)

    def above_all(self) -> None:
        once = self.problem.once_s[self.picks.option]
        for stage in range(self.problem.stages):
            own = self.of(stage)
            for column, values in ((self.width - 2, self.picks.seconds[own]), (self.width - 1, once[own])):
                self.row([(np.array([column]), np.ones(1)), (own, -values)], 0, np.inf)
