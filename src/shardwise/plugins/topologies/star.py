"""Star: worker 0 hears everyone; the others hear only worker 0."""

from dataclasses import dataclass
from typing import ClassVar

from shardwise.plugins.topologies._contract import GossipTopology, Matrix, metropolis


@dataclass(frozen=True)
class Star(GossipTopology):
    name: ClassVar[str] = "star"
    symmetric: ClassVar[bool] = True
    static: ClassVar[bool] = True

    def _matrices(self, n: int) -> list[Matrix]:
        return [metropolis(n, {(0, i) for i in range(1, n)})]


TOPOLOGY = Star
