"""Reinforcement learning: policy gradient on the game of improving a point, one move at a time.

The state is a point, an action is a move with its two positions, the reward is what the price falls by. The policy
draws the kind of move, then the first position, then the second given the first. Its logits are linear in what the
problem tells about each position (how busy, how full, ...), one set of weights per kind of move: a few dozen numbers,
few enough for 20,000 prices to teach. REINFORCE with Adam: the advantage is the rank of the reward in its batch;
weights are pulled towards 0 and some draws are even, so that it keeps looking. Several walkers play at once, from the
default and from random points. A move that costs is kept with a chance that falls as the budget is spent, and now and
then the worse half goes on from where the better half is.
"""

import numpy as np

from shardwise.arrays import Floats, Ints
from shardwise.plan.search.methods._contract import Method
from shardwise.plan.search.methods._meter import Meter
from shardwise.plan.search.problems._contract import Problem

WALKERS = 8
RATE = 0.05
PULL = 0.02
"""of the weights towards 0, where every action is as likely as any"""
EVEN = 0.05
"""share of draws that are even, so that no move is ever impossible"""
FAR = 3.0
"""signals beyond this count as this"""
REGROUP = 25
"""moves between two times that the worse half joins the better"""
HEAT = 0.001
"""a rise of the price, as a share of it, that is let pass one time in e at the start"""
SOFT_SHARE = 0.7
"""part of the budget that is played for softened maxima; see zeroth_order.py"""


class _Player:
    """The policy: weights, how to draw with them, and how they learn."""

    def __init__(self, problem: Problem, rng: np.random.Generator) -> None:
        self.problem, self.rng = problem, rng
        sample = problem.default[None]
        seen = problem.signals(sample)
        first, second = seen.first.shape[2], seen.second(np.zeros(1, dtype=np.int64)).shape[2]
        moves = len(problem.moves)
        self.weights = [np.zeros(moves), np.zeros((moves, first)), np.zeros((moves, second))]
        self.steps = [_Adam(table.shape) for table in self.weights]

    def play(self, points: Ints) -> tuple[Ints, list[Floats]]:
        """Points after one move each, and the slopes of the log-chance of each draw with respect to the weights."""
        rows, size = np.arange(len(points)), len(points)
        slopes = [np.zeros((size, *table.shape)) for table in self.weights]
        kinds = np.broadcast_to(np.eye(len(self.weights[0])), (size, *[len(self.weights[0])] * 2))
        move, slopes[0] = self._drawn(kinds, np.broadcast_to(self.weights[0], (size, len(self.weights[0]))))
        seen = self.problem.signals(points)
        one, slopes[1][rows, move] = self._drawn(np.clip(seen.first, -FAR, FAR), self.weights[1][move])
        other, slopes[2][rows, move] = self._drawn(np.clip(seen.second(one), -FAR, FAR), self.weights[2][move])
        return self.problem.moved(points, move, one, other), slopes

    def _drawn(self, seen: Floats, weights: Floats) -> tuple[Ints, Floats]:
        """One action per row from the softmax of its signals, and the slope of its log-chance."""
        logits = np.einsum("bpf,bf->bp", seen, weights)
        # the largest of logits plus Gumbel noise is a draw from their softmax
        action = np.argmax(logits + self.rng.gumbel(size=logits.shape), axis=1)
        even = self.rng.random(len(action)) < EVEN
        action = np.where(even, self.rng.integers(logits.shape[1], size=len(action)), action)
        chance = _softmax(logits)
        mean = np.einsum("bp,bpf->bf", chance, seen)
        slope = np.take_along_axis(seen, action[:, None, None], axis=1)[:, 0] - mean
        return action, slope

    def learn(self, reward: Floats, slopes: list[Floats]) -> None:
        # ranks instead of rewards: one move far over memory must not drown the others; equals share a rank
        _, place, same = np.unique(reward, return_inverse=True, return_counts=True)
        rank = (np.cumsum(same) - (same + 1) / 2.0)[place]
        better = (rank - (len(reward) - 1) / 2.0) / max(len(reward), 2) * 2.0
        for table, slope, adam in zip(self.weights, slopes, self.steps, strict=True):
            gradient = np.tensordot(better, slope, axes=1) / len(reward)
            table += adam.step(gradient - PULL * table)


def _softmax(logits: Floats) -> Floats:
    raised = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return np.asarray(raised / raised.sum(axis=-1, keepdims=True))


class _Adam:
    def __init__(self, shape: tuple[int, ...]) -> None:
        self.mean, self.square, self.count = np.zeros(shape), np.zeros(shape), 0

    def step(self, gradient: Floats) -> Floats:
        self.count += 1
        self.mean = 0.9 * self.mean + 0.1 * gradient
        self.square = 0.99 * self.square + 0.01 * gradient**2
        mean, square = self.mean / (1 - 0.9**self.count), self.square / (1 - 0.99**self.count)
        return np.asarray(RATE * mean / (np.sqrt(square) + 1e-8))


def _look(meter: Meter, seed: int) -> None:
    rng = np.random.default_rng(seed)
    player = _Player(meter.problem, rng)
    points = np.vstack([meter.problem.default[None], meter.problem.starts(WALKERS - 1, rng)])[: meter.left]
    prices, turn = np.stack(meter.price(points)), 0
    while meter.left:
        points, prices = points[: meter.left], prices[:, : meter.left]
        spent = meter.evaluations / meter.budget
        kind = 1 if spent < SOFT_SHARE else 0
        tried, slopes = player.play(points)
        found = np.stack(meter.price(tried))
        fall = (prices[kind] - found[kind]) / prices[kind]
        # only what gets better counts: else, where most moves make it worse, the lesson is to do nothing
        player.learn(np.maximum(fall, 0.0), slopes)
        taken = fall > HEAT * (1.0 - spent) * np.log(np.maximum(rng.random(len(fall)), 1e-30))
        points, prices = np.where(taken[:, None], tried, points), np.where(taken, found, prices)
        turn += 1
        if turn % REGROUP == 0:
            order = np.argsort(prices[kind], kind="stable")
            half = len(order) // 2
            points[order[-half:]], prices[:, order[-half:]] = points[order[:half]], prices[:, order[:half]]


METHOD = Method(
    name="rl",
    title="reinforcement learning",
    summary="policy gradient on improving moves, seeded",
    exact=False,
    look=_look,
)
