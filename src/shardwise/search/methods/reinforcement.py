"""Reinforcement learning: policy gradient (REINFORCE) with a baseline.

A policy fills the stages one after another. For each it draws the group and option from those still to be given out,
and how many layers more or fewer than an even share of what is left. Logits are tables: options by stage, layers by
stage and option. Each batch of draws moves them, by Adam, towards draws better than the batch's mean (the baseline),
with a little entropy so that it keeps looking.
"""

import numpy as np
from numpy.typing import NDArray

from shardwise.search.methods._contract import Method
from shardwise.search.methods._meter import Meter
from shardwise.search.methods._problem import Floats, Ints, StageProblem

BATCH = 32
RATE = 0.05
ENTROPY = 0.01
SPREAD = 1.5
"""layers away from the even share that the untrained policy usually draws"""
FORGOTTEN = -1e9


class _Player:
    """The policy: logits, how to draw with them, and the gradient of what was drawn."""

    def __init__(self, problem: StageProblem, rng: np.random.Generator) -> None:
        self.problem, self.rng = problem, rng
        shift = np.arange(-problem.layers, problem.layers + 1)
        self.logits = [
            np.tile(-0.5 * (shift / SPREAD) ** 2, (problem.stages, len(problem.options), 1)),
            np.zeros((problem.stages, 1, len(problem.options))),
        ]
        self.steps = [Adam(table.shape) for table in self.logits]

    def play(self, size: int) -> tuple[Ints, Ints, list[Floats]]:
        """Layers, options, and slopes of the log-chance of each draw: draws x stages x choice before x actions."""
        problem, stages = self.problem, self.problem.stages
        layers, options = np.zeros((size, stages), dtype=np.int64), np.zeros((size, stages), dtype=np.int64)
        slopes = [np.zeros((size, *table.shape)) for table in self.logits]
        left = np.full(size, problem.layers)
        places = np.tile(np.array(problem.group_stages), (size, 1))
        rows, fewest = np.arange(size), problem.fewest
        for stage in range(stages):
            free = places[:, problem.option_group] > 0
            options[:, stage], slopes[1][:, stage, 0] = self._drawn(self.logits[1][stage, 0], free)
            places[rows, problem.option_group[options[:, stage]]] -= 1
            share = np.rint(left / (stages - stage)).astype(np.int64)
            count = share[:, None] + np.arange(-problem.layers, problem.layers + 1)
            most = left - fewest[stage + 1 :].sum()
            least = most if stage == stages - 1 else fewest[stage]
            allowed = (count >= np.broadcast_to(least, (size,))[:, None]) & (count <= most[:, None])
            taken = options[:, stage]
            action, slopes[0][rows, stage, taken] = self._drawn(self.logits[0][stage, taken], allowed)
            layers[:, stage] = count[rows, action]
            left -= layers[:, stage]
        return layers, options, slopes

    def _drawn(self, logits: Floats, allowed: NDArray[np.bool_]) -> tuple[Ints, Floats]:
        logits = np.where(allowed, logits, FORGOTTEN)
        # the largest of logits plus Gumbel noise is a draw from their softmax
        action = np.argmax(np.where(allowed, logits + self.rng.gumbel(size=logits.shape), -np.inf), axis=1)
        slope = -_softmax(logits)
        slope[np.arange(len(action)), action] += 1.0
        return action, slope

    def learn(self, cost: Floats, slopes: list[Floats]) -> None:
        # ranks instead of costs: one draw far over memory must not drown the others; equals share a rank
        _, place, same = np.unique(cost, return_inverse=True, return_counts=True)
        rank = (np.cumsum(same) - (same + 1) / 2.0)[place]
        better = ((len(cost) - 1) / 2.0 - rank) / max(len(cost), 2) * 2.0
        for table, slope, adam in zip(self.logits, slopes, self.steps, strict=True):
            gradient = np.tensordot(better, slope, axes=1) / len(cost)
            chance = _softmax(table)
            surprise = -np.log(np.maximum(chance, 1e-30))
            mean = (chance * surprise).sum(axis=-1, keepdims=True)
            table += adam.step(gradient + ENTROPY * chance * (surprise - mean))


def _softmax(logits: Floats) -> Floats:
    raised = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return np.asarray(raised / raised.sum(axis=-1, keepdims=True))


class Adam:
    def __init__(self, shape: tuple[int, ...]) -> None:
        self.mean, self.square, self.count = np.zeros(shape), np.zeros(shape), 0

    def step(self, gradient: Floats) -> Floats:
        self.count += 1
        self.mean = 0.9 * self.mean + 0.1 * gradient
        self.square = 0.99 * self.square + 0.01 * gradient**2
        mean, square = self.mean / (1 - 0.9**self.count), self.square / (1 - 0.99**self.count)
        return np.asarray(RATE * mean / (np.sqrt(square) + 1e-8))


def _look(meter: Meter, seed: int) -> None:
    player = _Player(meter.problem, np.random.default_rng(seed))
    layers, options = (np.array([part], dtype=np.int64) for part in meter.problem.even)
    meter.price(layers, options)
    while meter.left:
        layers, options, slopes = player.play(min(BATCH, meter.left))
        player.learn(meter.price(layers, options), slopes)


METHOD = Method(name="rl", summary="policy gradient (REINFORCE with a baseline), seeded", exact=False, look=_look)
