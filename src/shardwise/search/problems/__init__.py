"""What there is to look for: the stages of a pipeline, nodes on a fabric, experts on ranks. See `docs/search.md`."""

from shardwise.search.problems._contract import (
    NOTHING_FITS,
    Chain,
    Floats,
    Ints,
    Priced,
    Problem,
    Program,
    Signals,
    Subsets,
)
from shardwise.search.problems._expert_build import Drawn, expert_problem, sample_of
from shardwise.search.problems._rank_build import rank_problem
from shardwise.search.problems._stage_build import Group, stage_problem
from shardwise.search.problems.experts import ExpertProblem
from shardwise.search.problems.ranks import RankProblem
from shardwise.search.problems.stages import Assignment, Option, StageProblem

__all__ = ["NOTHING_FITS", "Assignment", "Chain", "Drawn", "ExpertProblem", "Floats", "Group", "Ints", "Option",
           "Priced", "Problem", "Program", "RankProblem", "Signals", "StageProblem", "Subsets", "expert_problem", 
           "rank_problem", "sample_of", "stage_problem"]  # fmt: skip
