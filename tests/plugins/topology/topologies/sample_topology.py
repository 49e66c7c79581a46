"""A graph for the tests: a ring with the neighbours two places on as well."""

from dataclasses import dataclass
from typing import ClassVar

from shardwise.plugins.topologies._contract import GossipTopology, Matrix, metropolis


@dataclass(frozen=True)
class SampleTopology(GossipTopology):
    name: ClassVar[str] = "sample_topology"
    symmetric: ClassVar[bool] = True
    static: ClassVar[bool] = True

    def _matrices(self, n: int) -> list[Matrix]:
        return [metropolis(n, {(i, (i + step) % n) for i in range(n) for step in (1, 2)})]


TOPOLOGY = SampleTopology
