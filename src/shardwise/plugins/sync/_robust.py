"""Robust aggregation, spread over all workers: each combines one part of everyone's rows.

Parts travel once (all-to-all) and come back combined (all-gather); rules that need distances between whole rows add up
the parts' distances, n x n or n numbers. So nobody receives n whole rows, as a single server would.
"""

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from shardwise.plugins.sync._array import Array, local
from shardwise.plugins.sync._comm import Communicator
from shardwise.plugins.sync._strategy import Rate, State, Strategy, need_count, need_share


@dataclass(frozen=True)
class Robust(Strategy):
    gradient_only: ClassVar[bool] = True

    byzantine: int = 1
    """workers that may send anything"""
    momentum: float = 0.9
    """of each worker's gradient before it is sent: attacks that hide in the noise need it taken out"""

    def __post_init__(self) -> None:
        need_count("byzantine", self.byzantine, 0)
        need_share("momentum", self.momentum)

    def least_workers(self) -> int:
        return 2 * self.byzantine + 1

    def check(self, n: int) -> None:
        super().check(n)
        if n < self.least_workers():
            raise ValueError(
                f"workers: {self.name} against {self.byzantine} needs {self.least_workers()} or more, not {n}"
            )

    def init(self, c: Communicator, x: Array) -> State:  # noqa: ARG002
        return {"momentum": x * 0.0}

    def on_grad(self, c: Communicator, state: State, x: Array, g: Array, lr: Rate, t: int) -> Array:  # noqa: ARG002
        momentum: Array = self.momentum * state["momentum"] + (1.0 - self.momentum) * g
        state["momentum"] = momentum
        parts = c.spread(self.sent(momentum))
        return c.collect(self.combine(c, state, parts), g.shape[1])

    def sent(self, momentum: Array) -> Array:
        """Where a study of attacks puts its lies."""
        return momentum

    @abstractmethod
    def combine(self, c: Communicator, state: State, parts: Array) -> Array:
        """(m, n, part) -> (m, part)."""


def by_worker(work: Callable[..., Array], *arrays: Array) -> Array:
    """Worker by worker, so that a reduction adds alike in a simulation and in a run."""
    import torch

    return torch.stack([work(*(array[i].contiguous() for array in arrays)) for i in range(arrays[0].shape[0])])


def weighted(c: Communicator, parts: Array, weights: Array) -> Array:
    """The sum over workers of weight * part; weights (m, n). What has no weight may be infinite."""

    def scaled(parts: Array, weights: Array) -> Array:
        import torch

        share = (weights * parts.shape[1])[:, :, None]
        return torch.where(share > 0, parts * share, torch.zeros_like(parts))

    return c.fold(local(scaled, parts, weights))


def total(c: Communicator, numbers: Array) -> Array:
    """Partial sums (m, k) of all parts, added up at everyone; what is not a number is infinitely far."""

    def far(numbers: Array) -> Array:
        return numbers.nan_to_num(nan=float("inf"), posinf=float("inf"))

    return local(far, c.mean(numbers) * float(c.n))


def middle(parts: Array) -> Array:
    """The median of each coordinate: (m, n, part) -> (m, part)."""
    ordered, n = parts.sort(dim=1).values, parts.shape[1]
    return 0.5 * (ordered[:, (n - 1) // 2] + ordered[:, n // 2])


def pair_distances(c: Communicator, parts: Array) -> Array:
    """(m, n * n): squared distances between whole rows."""

    def partial(part: Array) -> Array:
        return ((part[:, None] - part[None, :]) ** 2).sum(dim=2).reshape(-1)

    shape = (parts.shape[0], parts.shape[1] ** 2)
    return total(c, local(lambda parts: by_worker(partial, parts), parts, shape=shape))


def centre_distances(c: Communicator, parts: Array, centre: Array) -> Array:
    """(m, n): squared distances of whole rows to a centre of which each worker has a part."""

    def partial(part: Array, middle: Array) -> Array:
        return ((part - middle) ** 2).sum(dim=1)

    shape = (parts.shape[0], parts.shape[1])
    return total(c, local(lambda a, b: by_worker(partial, a, b), parts, centre, shape=shape))
