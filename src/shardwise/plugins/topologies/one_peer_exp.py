"""One-peer exponential: one neighbour a step, 1, 2, 4, ... places away in turn; exact after log2 n steps iff n = 2^p.

Ying, Yuan et al. 2021, arXiv:2110.13363.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from shardwise.plugins.topologies._contract import GossipTopology, Matrix, hops


@dataclass(frozen=True)
class OnePeerExp(GossipTopology):
    name: ClassVar[str] = "one_peer_exp"
    symmetric: ClassVar[bool] = False
    static: ClassVar[bool] = False

    def _matrices(self, n: int) -> list[Matrix]:
        return [0.5 * (np.eye(n) + np.roll(np.eye(n), -hop, axis=1)) for hop in hops(n)]


TOPOLOGY = OnePeerExp
