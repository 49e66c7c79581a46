"""The tensor-parallel cut itself: which way to cut every matrix of a chain or graph of products (docs/cuts.md)."""

from shardwise.search.cuts._blocks import BLOCKS, block_of, chain
from shardwise.search.cuts._file import graph_from_file, graph_from_yaml
from shardwise.search.cuts._graph import ENDS, Graph
from shardwise.search.cuts._price import Move, Priced, Problem, machine_at
from shardwise.search.cuts.study import METHODS, Point, Study, study

__all__ = ["BLOCKS", "ENDS", "METHODS", "Graph", "Move", "Point", "Priced", "Problem", "Study", "block_of", "chain",
           "graph_from_file", "graph_from_yaml", "machine_at", "study"]  # fmt: skip
