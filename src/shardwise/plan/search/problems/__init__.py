"""What there is to look for, one folder or file each: stages, ranks, experts, cuts, a whole plan: docs/search.md."""

from functools import cache

from shardwise.arrays import Floats, Ints
from shardwise.plan.search.problems._contract import (
    NOTHING_FITS,
    ChoicePath,
    EitherOf,
    IntegerProgram,
    PointPrices,
    Problem,
    Signals,
    StageChain,
    Subsets,
)
from shardwise.plan.search.problems._kind import PointTable, ProblemKind, SearchInput, SearchSpace
from shardwise.plan.search.problems.experts import ExpertProblem, RandomRouting, expert_problem, sample_of
from shardwise.plan.search.problems.ranks import RankProblem, rank_problem
from shardwise.plan.search.problems.stages import GpuGroup, StageAssignment, StageOption, StageProblem, stage_problem
from shardwise.registry import named, plugins_of

__all__ = ["NOTHING_FITS", "ChoicePath", "EitherOf", "ExpertProblem", "Floats", "GpuGroup", "IntegerProgram", "Ints",
           "PointPrices", "PointTable", "Problem", "ProblemKind", "RandomRouting", "RankProblem", "SearchInput",
           "SearchSpace", "Signals", "StageAssignment", "StageChain", "StageOption", "StageProblem", "Subsets",
           "expert_problem", "problem_kind", "problem_kinds", "rank_problem", "sample_of", "stage_problem"]  # fmt: skip


@cache
def problem_kinds() -> dict[str, ProblemKind]:
    """Every kind of problem by its name."""
    found = plugins_of("shardwise.plan.search.problems", "PROBLEM", ProblemKind)
    return {kind.name: kind for kind in found.values()}


def problem_kind(name: str) -> ProblemKind:
    return named("problem", name, problem_kinds())
