"""Krum: the one row whose nearest rows are nearest to it."""

from dataclasses import dataclass
from typing import ClassVar

from shardwise.plugins.sync._array import Array, local
from shardwise.plugins.sync._comm import Communicator
from shardwise.plugins.sync._robust import Robust, by_worker, pair_distances, weighted
from shardwise.plugins.sync._strategy import State


@dataclass(frozen=True)
class Krum(Robust):
    name: ClassVar[str] = "krum"
    summary: ClassVar[str] = "the row nearest to its n - f - 2 nearest"
    source: ClassVar[str] = "Blanchard et al. 2017, arXiv:1703.02757"
    needs_whole: ClassVar[str] = "it compares whole rows"

    byzantine: int = 0

    def kept(self, n: int) -> int:  # noqa: ARG002
        return 1

    def least_workers(self) -> int:
        return 2 * self.byzantine + 3

    def combine(self, c: Communicator, state: State, parts: Array) -> Array:  # noqa: ARG002
        n, near, kept = c.n, c.n - self.byzantine - 2, self.kept(c.n)

        def weights(distances: Array) -> Array:
            import torch

            others = distances.view(n, n).clone()
            others.fill_diagonal_(float("inf"))
            scores = others.sort(dim=1).values[:, :near].sum(dim=1)
            best = scores.argsort(stable=True)[:kept]
            return torch.zeros(n, device=distances.device).index_fill_(0, best, 1.0 / kept)

        shape = (parts.shape[0], n)
        chosen = local(lambda d: by_worker(weights, d), pair_distances(c, parts), shape=shape)
        return weighted(c, parts, chosen)


STRATEGY = Krum
