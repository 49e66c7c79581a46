"""Centered clipping: rows are pulled to within a radius of the last result, then averaged."""

from dataclasses import dataclass
from typing import ClassVar

from shardwise.plugins.sync._array import Array, local
from shardwise.plugins.sync._comm import Communicator
from shardwise.plugins.sync._robust import Robust, centre_distances
from shardwise.plugins.sync._strategy import State, need_count


@dataclass(frozen=True)
class CenteredClipping(Robust):
    name: ClassVar[str] = "centered_clipping"
    summary: ClassVar[str] = "rows clipped around the last result, then averaged"
    source: ClassVar[str] = "Karimireddy et al. 2021, arXiv:2012.10333"
    needs_whole: ClassVar[str] = "it compares whole rows"

    radius: float = 10.0
    """about the spread of honest rows; far above it nothing is clipped"""
    iterations: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        need_count("iterations", self.iterations)
        if not self.radius > 0:
            raise ValueError(f"radius: {self.radius:g}; write a number above 0")

    def init(self, c: Communicator, x: Array) -> State:
        return {**super().init(c, x), "centre": c.fold(c.parts(x)) * 0.0}

    def combine(self, c: Communicator, state: State, parts: Array) -> Array:
        def clipped(parts: Array, centre: Array, distances: Array) -> Array:
            import torch

            factor = (self.radius / distances.sqrt().clamp_min(1e-30)).clamp_max(1.0)[:, :, None]
            away = parts - centre[:, None]
            return torch.where(factor > 0, away * factor, torch.zeros_like(away))

        for _ in range(self.iterations):
            distances = centre_distances(c, parts, state["centre"])
            state["centre"] = state["centre"] + c.fold(local(clipped, parts, state["centre"], distances))
        centre: Array = state["centre"]
        return centre


STRATEGY = CenteredClipping
