"""Decentralized SGD: a local step, then the weighted mean with the neighbours.

overlap: the neighbours' parameters of the step before travel while the gradient is computed (combine, then adapt); the
gradient is then added to the mean. Costs a copy of the parameters and a longer transient.
"""

from dataclasses import dataclass, field
from typing import ClassVar

from shardwise.plugins.sync._array import Array
from shardwise.plugins.sync._comm import Communicator
from shardwise.plugins.sync._strategy import Rate, State, Strategy
from shardwise.plugins.topologies import GossipTopology, topology


@dataclass(frozen=True)
class DSGD(Strategy):
    name: ClassVar[str] = "dsgd"
    summary: ClassVar[str] = "local step, then mean with neighbours"
    source: ClassVar[str] = "Lian et al. 2017, arXiv:1705.09056; Ying et al. 2021, arXiv:2110.13363"

    topology: GossipTopology = field(default_factory=lambda: topology("one_peer_exp"))
    overlap: bool = False

    def hides_under(self) -> str:
        return "step" if self.overlap else "nothing"

    def init(self, c: Communicator, x: Array) -> State:
        return {"mixing": c.start_mix(x, self.topology, 0)} if self.overlap else {}

    def on_param(self, c: Communicator, state: State, x0: Array, x1: Array, lr: Rate, t: int) -> Array:  # noqa: ARG002
        if not self.overlap:
            return c.mix(x1, self.topology, t)
        x: Array = state["mixing"].wait() + (x1 - x0)
        state["mixing"] = c.start_mix(x, self.topology, t + 1)
        return x

    @classmethod
    def examples(cls) -> tuple[Strategy, ...]:
        graphs = ("one_peer_exp", "ring", "star", "static_exp", "base")
        return (*(cls(topology(name)) for name in graphs), cls(overlap=True))


STRATEGY = DSGD
