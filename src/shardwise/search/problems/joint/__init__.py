"""Policy, stages, recompute and the parts of a cluster, all at once."""

from shardwise.search.problems.joint._lines import LineRequest, lines_below
from shardwise.search.problems.joint._parts import Link, Part, PartLines
from shardwise.search.problems.joint._problem import JointProblem, Line
from shardwise.search.problems.joint._space import PROBLEM

__all__ = ["PROBLEM", "JointProblem", "Line", "LineRequest", "Link", "Part", "PartLines", "lines_below"]
