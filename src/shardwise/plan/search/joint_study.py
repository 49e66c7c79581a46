"""One search over everything: the policy, its stages, what recomputes, the parts of a mixed cluster, the strategy of
data parallelism, which rank holds which experts and where the ranks lie. What `plan` takes without it is always among
the points, so the answer is never worse."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import combinations

import numpy as np

from shardwise.arrays import Ints
from shardwise.plan.candidate import Candidate
from shardwise.plan.search.joint_blocks import block_lines
from shardwise.plan.search.joint_placement import JointPlacement, placement_of, step_of, without_uplinks
from shardwise.plan.search.methods import Comparison, Method, Solution, compare, method_of
from shardwise.plan.search.problems.experts import expert_problem
from shardwise.plan.search.problems.joint import (
    ClusterPart,
    JointProblem,
    Line,
    LineRequest,
    PartLines,
    PartLink,
    lines_below,
)
from shardwise.spec.policy import Policy
from shardwise.step.simulate.split import simulate_split
from shardwise.step.simulate.step import simulate
from shardwise.work.case import Case

MOST_TRIED = 12
"""lines whose nodes are placed"""
LITTLE = 1e-3
"""share of the step below which nobody looks for a placement: the gap is stated all the same"""
LINE_BUDGET = 2_000
MAP_BUDGET = 4_000
"""placements of experts that are tried for each degree of expert parallelism"""


@dataclass(frozen=True)
class ExpertMap:
    """Which rank holds which experts, for one degree of expert parallelism."""

    rank_of: tuple[int, ...]
    """by expert"""
    imbalance: float
    """tokens of the fullest rank over the mean"""
    in_order: float
    """the same with experts in their own order"""


@dataclass(frozen=True)
class JointResult:
    problem: JointProblem
    found: Comparison
    best: Solution
    placement: JointPlacement | None
    """where nodes lie unlike in order, and what that saves of a step"""
    bound: float
    """no point has a lower objective, whatever the placement of its nodes"""

    @property
    def point(self) -> Ints:
        if self.best.point is None:
            raise ValueError("joint: nothing fits; write more GPUs, a larger --headroom or a shorter --seq")
        return self.best.point

    @property
    def line(self) -> Line:
        return self.problem.line_of(self.point)

    @property
    def plain(self) -> float:
        """Objective of what is taken without this search; infinite: nothing of that fits."""
        first = next(iter(self.problem.lines), None)
        return first.weight * first.step_s if first is not None and first.build is None else np.inf

    @property
    def objective(self) -> float:
        saved = 0.0 if self.placement is None else self.line.weight * self.placement.saved_s
        return self.best.objective_s - saved

    @property
    def step_s(self) -> float:
        return self.objective / self.line.weight

    @property
    def gain(self) -> float | None:
        """How much more is trained in the same time, or for the same money."""
        return self.plain / self.objective - 1.0 if np.isfinite(self.plain) else None

    @property
    def gap(self) -> float:
        return max(self.objective / self.bound - 1.0, 0.0) if self.bound > 0 else np.inf


def problem_of(planned: Sequence[Candidate], asked: Sequence[LineRequest], usd_per_s: float = 0.0) -> JointProblem:
    """Of one cluster. `planned`: what was found with even stages, the best first. `usd_per_s`: of all its GPUs, where
    the objective is money."""
    known = [as_planned(each) for each in planned[:1]]
    best = min((line.weight * line.step_s for line in known), default=np.inf)
    more = lines_below(asked, best)
    lines = sorted([*more.lines, *block_lines(more.lines, best)], key=lambda line: line.least_s)
    found = JointProblem((*known, *lines), more.rest_s, more.placed_s)
    return in_money(found, usd_per_s) if usd_per_s else found


def in_money(problem: JointProblem, usd_per_s: float) -> JointProblem:
    lines = [replace(line, weight=line.weight * usd_per_s, least_s=line.least_s * usd_per_s,
                     placed_s=line.placed_s * usd_per_s) for line in problem.lines]  # fmt: skip
    return JointProblem(tuple(lines), problem.rest_s * usd_per_s, problem.placed_s * usd_per_s)


def as_planned(found: Candidate) -> Line:
    weight = found.to_loss_s / found.step_s
    return Line(found.policy, found.to_loss_s, None, step_s=found.step_s, weight=weight)


def problem_of_parts(known: Sequence[Line], parts: Sequence[ClusterPart], link: PartLink) -> JointProblem:
    """Of a mixed cluster: pipelines through all parts, or through some of them. `known`: what can be planned without
    this search, each as one point."""
    order = sorted(known, key=lambda line: line.weight * line.step_s)
    best = order[0].weight * order[0].step_s if order else np.inf
    lines, rest = list[Line](), np.inf
    for count in range(len(parts), 1, -1):
        for some in combinations(parts, count):
            more, left = PartLines(some, link, sum(part.usd_per_s for part in some) or 1.0).below(best)
            lines, rest = lines + more, min(rest, left)
    lines.sort(key=lambda line: line.least_s)
    return JointProblem((*order, *lines), rest)


def solved(
    problem: JointProblem,
    methods: Sequence[Method] = (),
    *,
    budget: int,
    seed: int = 0,
    progress: Callable[[int, float], None] | None = None,
    placed_on: Case | None = None,
) -> JointResult:
    """`placed_on`: the case whose nodes may lie elsewhere than in order; None: they may not, or it is of no use."""
    if not problem.lines:
        nothing = Solution(None, np.inf, 0, 0.0, None, True, (), ())
        return JointResult(problem, Comparison({}, None, None), nothing, None, 0.0)
    chosen = list(methods) or [method_of("dp")]
    found = compare(problem, chosen, budget_evaluations=budget, seed=seed, progress=progress)
    best = min(found.solutions.values(), key=lambda each: (each.objective_s, not each.proven))
    bound = max(found.bound_s or 0.0, problem.bound_s)
    if best.point is None or placed_on is None:
        return JointResult(problem, found, best, None, min(bound, best.objective_s))
    return _placed(problem, found, best, placed_on, seed)


def _placed(problem: JointProblem, found: Comparison, best: Solution, case: Case, seed: int) -> JointResult:
    """Nodes are placed for one line after another, those first that could gain most, until no line can come below the
    best that is placed."""
    widest = without_uplinks(case)
    least = [line.weight * step_of(widest, line.policy, line.sync) if line.build is None else line.placed_s
             for line in problem.lines]  # fmt: skip
    taken, first = None, problem.line_of(best.point if best.point is not None else problem.default)
    order = sorted(range(len(least)), key=lambda number: (problem.lines[number] is not first, least[number]))
    for number in order[:MOST_TRIED]:
        line = problem.lines[number]
        if taken is not None and least[number] >= taken.objective * (1.0 - LITTLE):
            break
        solution = best if line is first else _in_order(problem, number, best, seed)
        if solution is not None:
            placement = None if line.unlike else placement_of(case, widest, line.policy, line.sync, seed)
            each = JointResult(problem, found, solution, placement, 0.0)
            taken = each if taken is None or each.objective < taken.objective else taken
    assert taken is not None
    return replace(taken, bound=max(min(problem.placed_s, taken.objective, *least), 0.0))


def _in_order(problem: JointProblem, number: int, like: Solution, seed: int) -> Solution | None:
    """The best stages of one line; None where none fit."""
    line = problem.lines[number]
    if line.build is None:
        point = problem.lifted(number, np.zeros(0, dtype=np.int64))
        return replace(like, point=point, objective_s=line.weight * line.step_s)
    alone = method_of("dp").solve(JointProblem((line,), np.inf), budget_evaluations=LINE_BUDGET, seed=seed)
    if alone.point is None:
        return None
    return replace(like, point=problem.lifted(number, alone.point[1:]), objective_s=alone.objective_s)


MOST_TASKS = 60_000
"""forwards and backwards of a pipeline that is followed event by event for a second opinion"""


def timeline_s(case: Case, result: JointResult) -> tuple[float, float] | None:
    """Steps of what is planned without this search and of the answer, both simulated; None where one cannot be."""
    held, line, first = result.problem.assignment(result.point), result.line, result.problem.lines[0]
    if (
        held is None
        or line.parts
        or line.unlike
        or line.sync is not None
        or first.build is not None
        or first.sync is not None
    ):
        return None
    if any(set(mix) - {"none", "full"} for mix in held.mixes) or line.policy.offload != "none":
        return None
    tasks = [each.pp * each.vpp * case.job.global_batch // (each.dp * each.micro_batch)
             for each in (line.policy, first.policy)]  # fmt: skip
    if max(tasks) > MOST_TASKS:
        return None
    return simulate(case, first.policy).step_s, simulate_split(case, line.policy, held.layers, held.recomputed).step_s


def expert_cases(case: Case, sample: Ints, seed: int = 0) -> tuple[Callable[[int], Case], Callable[[int], ExpertMap]]:
    """(the case as it is with the best map of experts on so many ranks, that map)."""

    @cache
    def map_of(ep: int) -> ExpertMap:
        if ep < 2:
            return ExpertMap((), 1.0, 1.0)
        problem = expert_problem(case, Policy(dp=case.cluster.gpus, ep=ep), sample=sample)
        found = method_of("rl").solve(problem, budget_evaluations=MAP_BUDGET, seed=seed)
        points = [problem.default] if found.point is None else [problem.default, found.point]
        loads = [float((problem.rank_loads(point[None]) / problem.loads.sum() * problem.ranks).max())
                 for point in points]  # fmt: skip
        best = int(np.argmin(loads))
        return ExpertMap(tuple(points[best].tolist()), loads[best], loads[0])

    @cache
    def case_of_ep(ep: int) -> Case:
        return case.changed(expert_imbalance=map_of(ep).imbalance, free_router=False)

    return case_of_ep, map_of
