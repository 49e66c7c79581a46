"""Ring: two neighbours; the gap closes as 1 / n^2."""

from dataclasses import dataclass
from typing import ClassVar

from shardwise.plugins.topologies._contract import GossipTopology, Matrix, metropolis


@dataclass(frozen=True)
class Ring(GossipTopology):
    name: ClassVar[str] = "ring"
    symmetric: ClassVar[bool] = True
    static: ClassVar[bool] = True

    def _matrices(self, n: int) -> list[Matrix]:
        return [metropolis(n, {(i, (i + 1) % n) for i in range(n)})]


TOPOLOGY = Ring
