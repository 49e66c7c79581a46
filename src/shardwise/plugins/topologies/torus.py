"""Torus: a grid whose rows and columns close."""

from dataclasses import dataclass
from typing import ClassVar

from shardwise.plugins.topologies._contract import GossipTopology, Matrix, metropolis, most_square


@dataclass(frozen=True)
class Torus(GossipTopology):
    name: ClassVar[str] = "torus"
    symmetric: ClassVar[bool] = True
    static: ClassVar[bool] = True

    def _matrices(self, n: int) -> list[Matrix]:
        rows, columns = most_square(n)
        places = [(r, c) for r in range(rows) for c in range(columns)]
        edges = {(r * columns + c, r * columns + (c + 1) % columns) for r, c in places}
        edges |= {(r * columns + c, (r + 1) % rows * columns + c) for r, c in places}
        return [metropolis(n, edges)]


TOPOLOGY = Torus
