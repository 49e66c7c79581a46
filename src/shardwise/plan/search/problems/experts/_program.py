"""Expert placement as an integer program.

x says which rank holds each expert; z is above the tokens of every rank. On small problems further variables say which
tokens come to which rank and node, so that the exchange is whole; on large ones they would be far too many: there the
program spreads the tokens alone, and the exchange enters its bound at what no placement is below.
"""

from collections.abc import Sequence

import numpy as np

from shardwise.arrays import Floats, Ints
from shardwise.plan.search.problems._contract import IntegerProgram
from shardwise.plan.search.problems._rows import ProgramRows
from shardwise.plan.search.problems.experts._problem import EXCHANGES, ExpertProblem

MOST_VISITS = 3_000
"""variables for visits up to which the program is whole"""
MOST_PIECES = 400


def expert_program(problem: ExpertProblem) -> IntegerProgram:
    kinds, weights = np.unique(problem.tokens, axis=0, return_counts=True)
    nodes = problem.ranks // problem.node_ranks
    pieces = _pieces(problem)
    small = len(kinds) * (problem.ranks + nodes) <= MOST_VISITS and len(pieces) <= MOST_PIECES
    model = _ExpertRows(problem, kinds if small else kinds[:0])
    model.each_expert_somewhere()
    cost = np.zeros(model.width)
    if small:
        model.visits(weights.astype(np.float64))
        model.products(pieces)
        model.exchange()
        cost[[model.product, model.total]] = 1.0
    else:
        cost[model.fullest] = 1.0
    whole, least, most = np.zeros(model.width, dtype=np.int64), np.zeros(model.width), np.ones(model.width)
    whole[: model.placed], whole[model.width - len(problem.protocols) :] = 1, 1
    most[model.fullest : model.total + 1] = np.inf
    least[model.fullest] = problem.least[0]
    least[0] = 1.0  # ranks and nodes are alike: the first expert may as well lie on the first

    def point(x: Floats) -> Ints:
        return np.asarray(np.argmax(x[: model.placed].reshape(problem.positions, -1), axis=1))

    def seconds(bound: float) -> float:
        if small:
            return bound
        worst = np.array([max(bound, problem.least[0]) / problem.loads.sum() * problem.ranks])
        return float(problem.products_s(worst)[0] + problem.least_exchange_s)

    return model.program(cost, whole, least, most, point, seconds)


def _pieces(problem: ExpertProblem) -> Floats:
    """Tokens the fullest rank can have: whole numbers from the least to all of its largest experts."""
    most = np.sort(problem.loads)[::-1][: problem.room[0]].sum()
    return np.arange(np.floor(problem.least[0]), most + 1.0)


class _ExpertRows(ProgramRows):
    """Columns: x, visits of ranks, visits of nodes, fullest rank, busiest rank, busiest node, busiest blocks above it,
    products, exchange, and which protocol that takes."""

    def __init__(self, problem: ExpertProblem, kinds: Ints) -> None:
        super().__init__()
        self.problem, self.kinds = problem, kinds
        self.nodes = problem.ranks // problem.node_ranks
        self.placed = problem.positions * problem.ranks
        self.first_rank = self.placed
        self.first_node = self.first_rank + len(kinds) * problem.ranks
        self.fullest = self.first_node + len(kinds) * self.nodes
        self.busiest = self.fullest + 1 + np.arange(1 + len(problem.blocks))
        self.product = int(self.busiest[-1]) + 1
        self.total = self.product + 1
        self.width = self.total + 1 + len(problem.protocols)

    def each_expert_somewhere(self) -> None:
        ranks, experts = self.problem.ranks, self.problem.positions
        for expert in range(experts):
            self.row([(expert * ranks + np.arange(ranks), np.ones(ranks))], 1, 1)
        for rank, room in enumerate(self.problem.room):
            own = np.arange(experts) * ranks + rank
            self.row([(own, np.ones(experts))], room, room)
            self.row([(np.array([self.fullest]), np.ones(1)), (own, -self.problem.loads)], 0, np.inf)

    def visits(self, weights: Floats) -> None:
        """A token visits every rank, and every node, that holds one of its experts."""
        problem, ranks = self.problem, self.problem.ranks
        for token, experts in enumerate(self.kinds):
            for expert in experts:
                for rank in range(ranks):
                    self._above([self.first_rank + token * ranks + rank], [int(expert) * ranks + rank])
                for node in range(self.nodes):
                    held = int(expert) * ranks + node * problem.node_ranks + np.arange(problem.node_ranks)
                    self._above([self.first_node + token * self.nodes + node], held.tolist())
        tokens = np.arange(len(self.kinds))
        for rank in range(ranks):
            own = self.first_rank + tokens * ranks + rank
            self._busiest(0, [own], weights, 1.0 - 1.0 / problem.node_ranks)
        for level, size in enumerate(problem.blocks, start=1):
            here = size // problem.node_ranks
            for block in range(ranks // size):
                inside = [self.first_node + tokens * self.nodes + block * here + node for node in range(here)]
                self._busiest(level, inside, weights, (1.0 - size / ranks) / size)

    def _above(self, column: list[int], others: list[int]) -> None:
        self.row([(np.array(column), np.ones(1)), (np.array(others), -np.ones(len(others)))], 0, np.inf)

    def _busiest(self, level: int, columns: Sequence[Ints], weights: Floats, share: float) -> None:
        entries = [(own, -share * weights) for own in columns]
        self.row([(self.busiest[[level]], np.ones(1)), *entries], 0, np.inf)

    def products(self, pieces: Floats) -> None:
        """The curve is convex and tokens are whole: straight lines between neighbours are exact where it counts."""
        mean = self.problem.loads.sum() / self.problem.ranks
        held = self.problem.products_s(np.append(pieces, pieces[-1] + 1.0) / mean)
        for at, value, slope in zip(pieces, held, np.diff(held), strict=False):
            columns = np.array([self.product, self.fullest])
            self.row([(columns, np.array([1.0, -slope]))], float(value - slope * at), np.inf)

    def exchange(self) -> None:
        """The total is above the worst level of the protocol that is taken."""
        problem, ways = self.problem, self.problem.protocols
        choices = self.total + 1 + np.arange(len(ways))
        self.row([(choices, np.ones(len(ways)))], 1, 1)
        for place, way in enumerate(ways):
            start = EXCHANGES * (way.start_s + float(problem.steps @ np.array(way.step_s)))
            worst = EXCHANGES * problem.token_bytes * len(problem.tokens) * max(way.byte_s)
            for column, byte in zip(self.busiest, way.byte_s, strict=False):
                paid = EXCHANGES * problem.token_bytes * byte
                columns = np.array([self.total, column, choices[place]])
                most = start + worst
                self.row([(columns, np.array([1.0, -paid, -most]))], start - most, np.inf)
