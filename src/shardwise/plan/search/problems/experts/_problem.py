"""Expert placement: which rank of an expert-parallel group holds which experts.

Tokens of a sample say which experts fire, and which fire together. The fullest rank sets the time of the products. A
token crosses the network once for every node that holds one of its experts, whichever rank there, and is handed on
inside the node once for every rank (as DeepSeek-V3 does, arXiv:2412.19437 section 3.2.2); tokens start evenly on all
ranks. So experts that fire together belong on one node, and hot ones on different ranks. The objective is the experts'
part of one layer for one micro-batch, forward and backward: products of the fullest rank and four exchanges.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from shardwise.arrays import Floats, Ints
from shardwise.cost.network import Protocol
from shardwise.plan.search.problems._boxes import Boxes
from shardwise.plan.search.problems._contract import IntegerProgram, PointPrices, Signals, Subsets, soft_max

EXCHANGES = 4.0
"""dispatch and combine, forward and backward"""
MOST_SETS = 12
"""experts up to which dynamic programming goes over all sets of them"""
SCALE = 2.0


@dataclass(frozen=True)
class ExpertProblem(Boxes):
    tokens: Ints
    """sample x top_k: the experts of each token; a replica has a number of its own"""
    room: tuple[int, ...]
    """experts of each rank: the same for all"""
    node_ranks: int
    """ranks of the group on one node"""
    blocks: tuple[int, ...]
    """by level above the node: ranks of the group in one child block (node, then leaf, ...)"""
    token_bytes: float
    """one token of the sample: what it stands for, spread over the group, on the wire of one rank"""
    products_s: Callable[[Floats], Floats]
    """fullest rank over the mean -> seconds"""
    steps: Floats
    """by level: messages of one exchange that wait for each other"""
    protocols: tuple[Protocol, ...]

    @property
    def ranks(self) -> int:
        return len(self.room)

    @cached_property
    def loads(self) -> Floats:
        """Tokens of the sample each expert gets."""
        return np.bincount(self.tokens.ravel(), minlength=self.positions).astype(np.float64)

    @cached_property
    def _mean(self) -> float:
        return float(self.loads.sum()) / self.ranks

    def reached(self, points: Ints) -> tuple[Floats, Floats]:
        """(points x ranks, points x nodes): tokens of the sample that go there, each once."""
        held = np.ascontiguousarray(np.moveaxis(points[:, self.tokens], 2, 0).astype(np.int32))
        return _visited(held, self.ranks), _visited(held // self.node_ranks, self.ranks // self.node_ranks)

    def rank_loads(self, points: Ints) -> Floats:
        index = np.arange(len(points))[:, None] * self.ranks + points
        weights = np.broadcast_to(self.loads, points.shape).ravel()
        total = np.bincount(index.ravel(), weights, len(points) * self.ranks)
        return np.asarray(total, dtype=np.float64).reshape(len(points), self.ranks)

    def price(self, points: Ints) -> PointPrices:
        loads = self.rank_loads(points) / self._mean
        by_rank, by_node = self.reached(points)
        volumes = self.volumes(by_rank, by_node)
        seconds = self.products_s(loads.max(axis=1)) + self.exchange_s([v.max(axis=1) for v in volumes])
        guide = self.products_s(soft_max(loads)) + self.exchange_s([soft_max(v) for v in volumes])
        return PointPrices(seconds, np.zeros(len(points)), guide)

    def told(self, point: Ints) -> dict[str, float]:
        """What there is to say about a placement."""
        loads = self.rank_loads(point[None]) / self._mean
        by_rank, by_node = self.reached(point[None])
        worst = [v.max(axis=1) for v in self.volumes(by_rank, by_node)]
        return {
            "imbalance": float(loads.max()), "visits_per_token": float(by_node.sum() / len(self.tokens)),
            "busiest_node": float(by_node.max() / by_node.mean()),
            "products_s": float(self.products_s(loads.max(axis=1))[0]), "exchange_s": float(self.exchange_s(worst)[0]),
        }  # fmt: skip

    def volumes(self, by_rank: Floats, by_node: Floats) -> list[Floats]:
        """By level, for each block below it: tokens of the sample that enter it, per rank there."""
        found = [by_rank * (1.0 - 1.0 / self.node_ranks)]
        for ranks in self.blocks:
            nodes = by_node.reshape(len(by_node), -1, ranks // self.node_ranks).sum(axis=2)
            found.append(nodes * (1.0 - ranks / self.ranks) / ranks)
        return found

    def exchange_s(self, volumes: list[Floats]) -> Floats:
        """All exchanges of the layer, from what the worst block of each level takes in."""
        best = np.full(volumes[0].shape, np.inf)
        for way in self.protocols:
            slope = np.maximum.reduce([v * byte for v, byte in zip(volumes, way.byte_s, strict=False)])
            start = way.start_s + float(self.steps @ np.array(way.step_s))
            best = np.minimum(best, start + slope * self.token_bytes)
        return np.asarray(EXCHANGES * best)

    @cached_property
    def least(self) -> tuple[float, float, float]:
        """No placement has less: (fullest rank's tokens, tokens of the busiest rank, of the busiest node)."""
        loads, per_rank = np.sort(self.loads)[::-1], self.room[0]
        smallest = np.cumsum(np.append(0.0, loads[::-1]))
        fullest = max(self._mean, loads[0] + smallest[per_rank - 1])
        if per_rank > 1:
            # of one expert more than there are ranks, two share one
            fullest = max(fullest, loads[self.ranks - 1 : self.ranks + 1].sum() + smallest[per_rank - 2])
        reached = [
            max(self._visits(per_rank * ranks) / (self.ranks / ranks), float(loads[0]))
            for ranks in (1, self.node_ranks)
        ]
        return float(fullest), reached[0], reached[1]

    def _visits(self, inside: int) -> float:
        """Visits of tokens to boxes of so many experts, at least: an expert can share those of a token with the experts
        it fires with most (the harmonic mean of how many fire together is at most the plain one)."""
        together = self.together.copy()
        np.fill_diagonal(together, 0.0)
        friends = np.sort(together, axis=1)[:, ::-1][:, : inside - 1].sum(axis=1)
        fired = self.loads > 0
        visits = self.loads[fired] ** 2 / (self.loads + friends)[fired]
        return max(float(visits.sum()), float(len(self.tokens)))

    @cached_property
    def together(self) -> Floats:
        """Experts x experts: tokens that fire both."""
        fires = np.zeros((len(self.tokens), self.positions))
        fires[np.arange(len(self.tokens))[:, None], self.tokens] = 1.0
        return np.asarray(fires.T @ fires)

    @cached_property
    def least_exchange_s(self) -> float:
        _, by_rank, by_node = self.least
        # above the node only the mean over nodes is known: the busiest node says nothing about its leaf
        even = self._visits(self.room[0] * self.node_ranks) / (self.ranks / self.node_ranks)
        ranks = np.full((1, self.ranks), by_rank)
        worst, flat = (self.volumes(ranks, np.full((1, self.ranks // self.node_ranks), n)) for n in (by_node, even))
        return float(self.exchange_s([v.max(axis=1) for v in (*worst[:2], *flat[2:])])[0])

    @cached_property
    def bound_s(self) -> float:
        return float(self.products_s(np.array([self.least[0] / self._mean]))[0] + self.least_exchange_s)

    @cached_property
    def _company(self) -> NDArray[np.float32]:
        """Experts x experts: share of the first one's tokens that fire the second too."""
        apart = self.together * (1.0 - np.eye(self.positions))
        return (apart / np.maximum(self.loads, 1.0)[:, None]).astype(np.float32)

    def signals(self, points: Ints) -> Signals:
        """Of each expert: its tokens; its rank's; its node's; how often it fires with others on its node.

        Of the second: its tokens and its rank's less the first one's, how far from equal a swap leaves the two ranks,
        what both gain in company; 1 where they share a rank.
        """
        rows, node = np.arange(len(points)), points // self.node_ranks
        ranks = self.rank_loads(points) / self._mean - 1.0
        nodes = ranks.reshape(len(points), -1, self.node_ranks).mean(axis=2)
        company = self._company @ np.eye(self.ranks // self.node_ranks, dtype=np.float32)[node]
        friends = np.take_along_axis(company, node[:, :, None], axis=2)[:, :, 0]
        rank = np.take_along_axis(ranks, points, axis=1)
        own = self.loads / self._mean

        def second(one: Ints) -> Floats:
            here, first = node[rows, one], company[rows, one]
            less, apart = own - own[one][:, None], rank - rank[rows, one][:, None]
            gain = np.take_along_axis(first, node, axis=1) - first[rows, here][:, None]
            back = company[rows, :, here] - friends
            together = points == points[rows, one][:, None]
            uneven = np.abs(apart - 2.0 * less)
            return np.stack([less * SCALE, apart * SCALE, uneven * SCALE, gain + back, together], axis=2)

        popular = np.broadcast_to(self.loads / self.loads.mean() - 1.0, points.shape)
        beside = np.take_along_axis(nodes, node, axis=1)
        lonely = friends - friends.mean(axis=1, keepdims=True)
        return Signals(np.stack([popular, rank * SCALE, beside * SCALE, lonely], axis=2), second)

    def decomposition(self) -> Subsets | str:
        if self.positions > MOST_SETS:
            return f"it goes over all sets of experts, and {self.positions} are too many; {MOST_SETS} is the most"
        if len(self.blocks) > 1:
            return "its group lies under several leaves, and what enters a leaf is a sum over nodes"
        return Subsets(
            items=self.positions, per_box=self.room[0], boxes_per_block=self.node_ranks,
            blocks=self.ranks // self.node_ranks, box_cost=self._box_cost, block_cost=self._block_cost,
            seconds=self._worst_s,
        )  # fmt: skip

    def _box_cost(self, items: tuple[int, ...]) -> tuple[float, ...]:
        return float(self.loads[list(items)].sum()), float(np.isin(self.tokens, items).any(axis=1).sum())

    def _block_cost(self, items: tuple[int, ...]) -> tuple[float, ...]:
        return (float(np.isin(self.tokens, items).any(axis=1).sum()),)

    def _worst_s(self, box: tuple[float, ...], block: tuple[float, ...]) -> float:
        nodes = self.ranks // self.node_ranks
        volumes = self.volumes(np.full((1, self.ranks), box[1]), np.full((1, nodes), block[0]))
        exchange = self.exchange_s([v.max(axis=1) for v in volumes])
        return float(self.products_s(np.array([box[0] / self._mean]))[0] + exchange[0])

    def program(self, best_s: float) -> IntegerProgram | str:  # noqa: ARG002
        from shardwise.plan.search.problems.experts._program import expert_program

        return expert_program(self)


def _visited(places: NDArray[np.int32], count: int) -> Floats:
    """(one of a token's experts x points x tokens) -> points x places: tokens that come there, each once."""
    size = places.shape[1]
    total = np.zeros(size * count)
    row = np.arange(size, dtype=np.int64)[:, None] * count
    for last in range(len(places)):
        new = np.ones(places.shape[1:], dtype=np.bool_)
        for before in range(last):
            new &= places[last] != places[before]
        total += np.bincount((row + places[last])[new], minlength=len(total))
    return total.reshape(size, count)
