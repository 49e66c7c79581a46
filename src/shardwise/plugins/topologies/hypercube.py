"""Hypercube: workers whose numbers differ in one bit; n is a power of two."""

from dataclasses import dataclass
from typing import ClassVar

from shardwise.plugins.topologies._contract import GossipTopology, Matrix, hops, metropolis


@dataclass(frozen=True)
class Hypercube(GossipTopology):
    name: ClassVar[str] = "hypercube"
    symmetric: ClassVar[bool] = True
    static: ClassVar[bool] = True

    def check(self, n: int) -> None:
        super().check(n)
        if n & (n - 1):
            raise ValueError(f"workers: a hypercube needs a power of two, not {n}; use static_exp, or base for any n")

    def _matrices(self, n: int) -> list[Matrix]:
        return [metropolis(n, {(i, i ^ bit) for i in range(n) for bit in hops(n)})]


TOPOLOGY = Hypercube
