"""Policy, stages, recompute and the parts of a cluster, all at once."""

from shardwise.plan.search.problems.joint._lines import LineRequest, lines_below
from shardwise.plan.search.problems.joint._parts import ClusterPart, PartLines, PartLink
from shardwise.plan.search.problems.joint._problem import JointProblem, Line
from shardwise.plan.search.problems.joint._space import PROBLEM

__all__ = ["PROBLEM", "ClusterPart", "JointProblem", "Line", "LineRequest", "PartLines", "PartLink", "lines_below"]
