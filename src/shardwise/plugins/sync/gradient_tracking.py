"""Gradient tracking: neighbours also average an estimate of the global gradient; no bias from unequal data.

Adapt-then-combine: y+ = W y + g+ - g, x+ = W (x - lr y). Two messages per neighbour.
"""

from dataclasses import dataclass, field
from typing import ClassVar

from shardwise.plugins.sync._array import Array
from shardwise.plugins.sync._comm import Communicator
from shardwise.plugins.sync._strategy import Rate, State, Strategy
from shardwise.plugins.topologies import GossipTopology, topology


@dataclass(frozen=True)
class GradientTracking(Strategy):
    name: ClassVar[str] = "gradient_tracking"
    summary: ClassVar[str] = "neighbours average parameters and a tracked gradient"
    source: ClassVar[str] = "Di Lorenzo and Scutari 2016, arXiv:1602.00591; Nedic et al. 2017, arXiv:1607.03218"

    topology: GossipTopology = field(default_factory=lambda: topology("ring"))

    def init(self, c: Communicator, x: Array) -> State:  # noqa: ARG002
        return {"tracked": x * 0.0, "gradient": x * 0.0}

    def on_grad(self, c: Communicator, state: State, x: Array, g: Array, lr: Rate, t: int) -> Array:  # noqa: ARG002
        tracked: Array = c.mix(state["tracked"], self.topology, t) + (g - state["gradient"])
        state["tracked"], state["gradient"] = tracked, g
        return tracked

    def on_param(self, c: Communicator, state: State, x0: Array, x1: Array, lr: Rate, t: int) -> Array:  # noqa: ARG002
        return c.mix(x1, self.topology, t)


STRATEGY = GradientTracking
