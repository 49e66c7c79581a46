"""What there is to look for: the stages of a pipeline, nodes on a fabric, experts on ranks. See `docs/search.md`."""

from shardwise.search.problems._contract import (
    NOTHING_FITS,
    Chain,
    Floats,
    Ints,
    Priced,
    Problem,
    Program,
    Subsets,
)
from shardwise.search.problems._stage_build import Group, stage_problem
from shardwise.search.problems.stages import Assignment, Option, StageProblem

__all__ = ["NOTHING_FITS", "Assignment", "Chain", "Floats", "Group", "Ints", "Option", "Priced", "Problem", "Program",
           "StageProblem", "Subsets", "stage_problem"]  # fmt: skip
