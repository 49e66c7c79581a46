"""Complete: everyone hears everyone; one step is the global mean."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from shardwise.plugins.topologies._contract import GossipTopology, Matrix


@dataclass(frozen=True)
class Complete(GossipTopology):
    name: ClassVar[str] = "complete"
    symmetric: ClassVar[bool] = True
    static: ClassVar[bool] = True

    def _matrices(self, n: int) -> list[Matrix]:
        return [np.full((n, n), 1.0 / n)]


TOPOLOGY = Complete
