"""One search over everything: the policy, its stages, what recomputes, the parts of a mixed cluster, the strategy of
data parallelism, which rank holds which experts and where the ranks lie. What `plan` takes without it is always among
the points, so the answer is never worse."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from shardwise.case import Case
from shardwise.plan.candidate import Candidate
from shardwise.search.joint_placement import Placement, placement_of
from shardwise.search.methods import Comparison, Method, Solution, compare, method_of
from shardwise.search.problems._contract import Ints
from shardwise.search.problems.experts import expert_problem
from shardwise.search.problems.joint import JointProblem, Line, LineRequest, PartLines, lines_below
from shardwise.simulate.split import simulate_split
from shardwise.simulate.step import simulate
from shardwise.spec.policy import Policy

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
    placement: Placement | None
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
        first = self.problem.lines[0]
        return first.weight * first.step_s if first.build is None else np.inf

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
    found = JointProblem((*known, *more.lines), more.rest_s, more.placed_s)
    return in_money(found, usd_per_s) if usd_per_s else found


def in_money(problem: JointProblem, usd_per_s: float) -> JointProblem:
    lines = [replace(line, weight=line.weight * usd_per_s, least_s=line.least_s * usd_per_s) for line in problem.lines]
    return JointProblem(tuple(lines), problem.rest_s * usd_per_s, problem.placed_s * usd_per_s)


def as_planned(found: Candidate) -> Line:
    weight = found.to_loss_s / found.step_s
    return Line(found.policy, found.to_loss_s, None, step_s=found.step_s, weight=weight)


def problem_of_parts(known: Sequence[Line], parts: PartLines) -> JointProblem:
    """Of a mixed cluster. `known`: what can be planned without this search, each as one point."""
    order = sorted(known, key=lambda line: line.weight * line.step_s)
    best = order[0].weight * order[0].step_s if order else np.inf
    lines, rest = parts.below(best)
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
    chosen = list(methods) or [method_of("dp")]
    found = compare(problem, chosen, budget_evaluations=budget, seed=seed, progress=progress)
    best = min(found.solutions.values(), key=lambda each: (each.objective_s, not each.proven))
    bound = max(found.bound_s or 0.0, problem.bound_s)
    if best.point is None or placed_on is None:
        return JointResult(problem, found, best, None, min(bound, best.objective_s))
    ways = [(best, problem.line_of(best.point))]
    first = problem.lines[0]
    if first.build is None and first is not ways[0][1]:
        ways.append((replace(best, point=problem.default, objective_s=first.weight * first.step_s), first))
    results = [
        JointResult(problem, found, solution, placement_of(placed_on, line.policy, line.sync, seed), 0.0)
        for solution, line in ways
    ]
    taken = min(results, key=lambda each: each.objective)
    hidden = [each.best.objective_s - each.placement.exposed_s * each.line.weight for each in results if each.placement]
    return replace(taken, bound=max(min(bound, problem.placed_s, taken.objective, *hidden), 0.0))


MOST_TASKS = 60_000
"""forwards and backwards of a pipeline that is followed event by event for a second opinion"""


def timeline_s(case: Case, result: JointResult) -> tuple[float, float] | None:
    """Steps of what is planned without this search and of the answer, both simulated; None where one cannot be."""
    held, line, first = result.problem.assignment(result.point), result.line, result.problem.lines[0]
    if held is None or line.parts or line.sync is not None or first.build is not None or first.sync is not None:
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
        return case.changed(expert_imbalance=map_of(ep).imbalance)

    return case_of_ep, map_of
