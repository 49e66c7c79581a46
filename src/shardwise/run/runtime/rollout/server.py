"""A rank that only rolls out: takes orders and weights from the trainer, gives answers."""

from time import perf_counter

import torch

from shardwise.run.runtime.rollout.bridge import Bridge
from shardwise.run.runtime.rollout.engine import AnsweringEngine
from shardwise.run.runtime.rollout.exchange import StepOrders, give_answers
from shardwise.run.runtime.rollout.prompts import rolled_out
from shardwise.run.runtime.rollout.reshard import WeightMover
from shardwise.run.runtime.train.feed import trained_on
from shardwise.run.runtime.train.task import TrainingOrder


class RolloutServer:
    def __init__(self, order: TrainingOrder, device: torch.device, bridge: Bridge) -> None:
        assert order.rollout is not None
        self.bridge, self.source = bridge, trained_on(order)
        self.engine = AnsweringEngine(order.task, order.rollout, device)
        self.mover = WeightMover(bridge, None, self.engine.chunk)
        self.orders = StepOrders(bridge, ())

    def run(self) -> None:
        """Until the trainer has had enough."""
        while steps := self.orders.take():
            self.mover.move()
            for step in steps:
                self._answer(step)

    def _answer(self, step: int) -> None:
        world, start = self.engine.world, perf_counter()
        world.comm.events.clear()
        found = rolled_out(self.engine, self.source, step)
        seconds, sent = perf_counter() - start, sum(event.bytes for event in world.comm.events)
        if world.tp.index == 0:
            # the ranks of an engine send alike
            give_answers(self.bridge, found.packed(), seconds, float(sent * world.tp.size))
