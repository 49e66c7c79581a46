"""Static exponential: worker i hears i - 1, i - 2, i - 4, ...; directed, gap 2 / (1 + log2 n) at powers of two.

Ying, Yuan et al. 2021, arXiv:2110.13363.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from shardwise.plugins.topologies._contract import GossipTopology, Matrix, hops


@dataclass(frozen=True)
class StaticExp(GossipTopology):
    name: ClassVar[str] = "static_exp"
    symmetric: ClassVar[bool] = False
    static: ClassVar[bool] = True

    def _matrices(self, n: int) -> list[Matrix]:
        away = [0, *hops(n)]
        return [sum((np.roll(np.eye(n), -hop, axis=1) for hop in away), np.zeros((n, n))) / len(away)]


TOPOLOGY = StaticExp
