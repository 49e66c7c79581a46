"""The tensor-parallel cut itself: which way to cut every matrix of a chain or graph of products (docs/cuts.md)."""

from shardwise.plan.search.problems.cuts._blocks import BLOCKS, block_of, chain
from shardwise.plan.search.problems.cuts._file import graph_from_file, graph_from_yaml
from shardwise.plan.search.problems.cuts._graph import ENDS, CutGraph
from shardwise.plan.search.problems.cuts._named import NamedCut, named_cuts
from shardwise.plan.search.problems.cuts._price import Assignment, CutCollective, CutPrice, machine_at
from shardwise.plan.search.problems.cuts._problem import CutProblem
from shardwise.plan.search.problems.cuts._space import PROBLEM

__all__ = ["BLOCKS", "ENDS", "PROBLEM", "Assignment", "CutCollective", "CutGraph", "CutPrice", "CutProblem", "NamedCut",
           "block_of", "chain", "graph_from_file", "graph_from_yaml", "machine_at", "named_cuts"]  # fmt: skip
