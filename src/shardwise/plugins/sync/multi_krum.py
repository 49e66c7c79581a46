"""Multi-Krum: the mean of the n - f rows Krum likes best."""

from dataclasses import dataclass
from typing import ClassVar

from shardwise.plugins.sync.krum import Krum


@dataclass(frozen=True)
class MultiKrum(Krum):
    name: ClassVar[str] = "multi_krum"
    summary: ClassVar[str] = "mean of the n - f rows Krum likes best"
    source: ClassVar[str] = "Blanchard et al. 2017, arXiv:1703.02757"

    def kept(self, n: int) -> int:
        return n - self.byzantine


STRATEGY = MultiKrum
