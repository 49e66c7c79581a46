"""Grid: rows and columns with ends; as square as the divisors of n allow."""

from dataclasses import dataclass
from typing import ClassVar

from shardwise.plugins.topologies._contract import GossipTopology, Matrix, metropolis, most_square


@dataclass(frozen=True)
class Grid(GossipTopology):
    name: ClassVar[str] = "grid"
    symmetric: ClassVar[bool] = True
    static: ClassVar[bool] = True

    def _matrices(self, n: int) -> list[Matrix]:
        _, columns = most_square(n)
        across = {(i, i + 1) for i in range(n - 1) if (i + 1) % columns}
        return [metropolis(n, across | {(i, i + columns) for i in range(n - columns)})]


TOPOLOGY = Grid
