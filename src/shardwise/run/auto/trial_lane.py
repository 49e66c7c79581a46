"""Ranks that share a product, pretended one after the other in one process: what they tell each other is kept."""

import torch
from torch import Tensor

from shardwise.run.auto.lanes import Copied
from shardwise.run.auto.wide import Widened

ATTENDS = frozenset({"scaled_dot_product_attention", "softmax"})


class Reached(BaseException):
    """Thrown where the row product has been reached: nothing behind it matters."""


class Waiting(BaseException):
    """Thrown where a rank needs what another has not told yet."""


class Board:
    """What ranks have told so far, in the order in which each of them did."""

    def __init__(self, ranks: int) -> None:
        self.told: list[list[Tensor]] = [[] for _ in range(ranks)]

    def all_of(self, rank: int, place: int, x: Tensor) -> list[Tensor]:
        """What every rank told at this place. Gradients go back to all of them, as they are of one graph."""
        del self.told[rank][place:]
        self.told[rank].append(x)
        if any(len(each) <= place for each in self.told):
            raise Waiting
        return [each[place] for each in self.told]


class TrialLane:
    """One rank of a pretended lane: the last sum is not made but kept."""

    pretended = True

    def __init__(self, size: int, rank: int, board: Board, *, detached: bool = False) -> None:
        self.size, self.rank, self.board, self.detached = size, rank, board, detached
        self.begin()

    def begin(self) -> None:
        self.left: Tensor | None = None
        self.entered: list[Tensor] = []
        self.told = 0
        self.totals: list[int] = []
        """elements of what was summed on the way"""
        self.mode = Widened()
        self.start = 0
        """functions called before anything entered"""

    @property
    def attends(self) -> bool:
        return any(name in ATTENDS for name in self.mode.called[self.start :])

    def enter(self, x: Tensor) -> Tensor:
        if not self.entered:
            self.start = len(self.mode.called)
        self.entered.append(x)
        return x.detach().requires_grad_(False) if self.detached else x

    def leave(self, x: Tensor) -> Tensor:
        self.left = x
        raise Reached

    def gather(self, x: Tensor) -> Tensor:  # noqa: ARG002
        raise AssertionError("no part of a cut")

    def total(self, x: Tensor) -> Tensor:
        self.totals.append(x.numel())
        return torch.stack(self._of_all(x)).sum(0)

    def join(self, x: Tensor, axis: int) -> Tensor:
        return torch.cat(self._of_all(x), axis)

    def part(self, x: Tensor, axis: int) -> Tensor:
        whole = torch.stack(self._of_all(x)).sum(0)
        length = whole.shape[axis] // self.size
        return whole.narrow(axis, self.rank * length, length)

    def _of_all(self, x: Tensor) -> list[Tensor]:
        self.told += 1
        return self.board.all_of(self.rank, self.told - 1, x)

    def enter_some(self, x: Tensor, some: Copied) -> Tensor:  # noqa: ARG002
        return x
