"""PowerSGD: gradients of matrices as two thin factors with error feedback and a warm start; both factors add up, so
two all-reduces carry them. Vectors and small matrices go dense, together with the first factor."""

from dataclasses import dataclass
from math import prod
from typing import ClassVar

from shardwise.plugins.compressors import Draw
from shardwise.plugins.sync._array import Array, local
from shardwise.plugins.sync._comm import Communicator
from shardwise.plugins.sync._layout import ParameterLayout
from shardwise.plugins.sync._strategy import Rate, State, Strategy, need_count


@dataclass(frozen=True)
class PowerSGD(Strategy):
    name: ClassVar[str] = "power_sgd"
    summary: ClassVar[str] = "thin factors of gradient matrices, error feedback"
    source: ClassVar[str] = "Vogels et al. 2019, arXiv:1905.13727"
    gradient_only: ClassVar[bool] = True
    needs_whole: ClassVar[str] = "it factors whole matrices"

    rank: int = 1
    start: int = 0
    """steps with dense gradients first; torch's hook has 1000"""
    least_rate: float = 2.0
    """a matrix is factored only where that is smaller by this much"""

    def __post_init__(self) -> None:
        need_count("rank", self.rank)
        need_count("start", self.start, 0)

    def hides_under(self) -> str:
        return "backward"  # a bucket holds whole matrices

    def factors_matrices(self) -> bool:
        return True

    def settles(self) -> int:
        return self.start

    def init(self, c: Communicator, x: Array) -> State:
        plan = _plan(c.layout, self.rank, self.least_rate)
        seed = c.seed
        right = local(lambda x: _first_factors(x, plan.columns, seed), x, shape=(x.shape[0], max(plan.columns, 1)))
        return {"error": x * 0.0, "right": right}

    def on_grad(self, c: Communicator, state: State, x: Array, g: Array, lr: Rate, t: int) -> Array:  # noqa: ARG002
        plan = _plan(c.layout, self.rank, self.least_rate)
        if t < self.start or not plan.matrices:
            return c.mean(g)
        row: Array = state["error"] + g
        m = row.shape[0]
        sent = local(plan.left_and_dense, row, state["right"], shape=(m, plan.rows + plan.dense))
        mean = c.mean(sent)
        left = local(plan.orthonormal, mean, shape=(m, plan.rows))
        right = c.mean(local(plan.right, row, left, shape=(m, plan.columns)))
        state["right"] = right
        out = local(plan.rebuilt, row, left, right, mean)
        state["error"] = row - out
        return out

    @classmethod
    def examples(cls) -> tuple[Strategy, ...]:
        return cls(), cls(rank=2, start=2)


def _plan(layout: ParameterLayout, rank: int, least_rate: float) -> "_FactorPlan":
    matrices, dense = [], []
    for shape, (start, stop) in zip(layout.shapes, layout.bounds, strict=True):
        rows, columns = (shape[0], prod(shape[1:])) if len(shape) > 1 else (1, prod(shape))
        thin = min(rank, rows, columns)
        if thin * (rows + columns) * least_rate <= rows * columns:
            matrices.append((start, rows, columns, thin))
        else:
            dense.append((start, stop))
    return _FactorPlan(tuple(matrices), tuple(dense))


@dataclass(frozen=True)
class _FactorPlan:
    matrices: tuple[tuple[int, int, int, int], ...]
    """(start, rows, columns, rank) of each factored one"""
    dense_bounds: tuple[tuple[int, int], ...]

    @property
    def rows(self) -> int:
        return sum(rows * rank for _, rows, _, rank in self.matrices)

    @property
    def columns(self) -> int:
        return sum(columns * rank for _, _, columns, rank in self.matrices)

    @property
    def dense(self) -> int:
        return sum(stop - start for start, stop in self.dense_bounds)

    def left_and_dense(self, row: Array, right: Array) -> Array:
        """M Q of every matrix, then the numbers that go dense."""
        import torch

        out = []
        for mine, factors in zip(row, right, strict=True):
            pieces, at = [], 0
            for start, rows, columns, rank in self.matrices:
                matrix = mine[start : start + rows * columns].clone().view(rows, columns)
                pieces.append((matrix @ factors[at : at + columns * rank].clone().view(columns, rank)).reshape(-1))
                at += columns * rank
            out.append(torch.cat([*pieces, *(mine[start:stop] for start, stop in self.dense_bounds)]))
        return torch.stack(out)

    def orthonormal(self, mean: Array) -> Array:
        import torch

        out = []
        for row in mean:
            pieces, at = [], 0
            for _, rows, _, rank in self.matrices:
                left = row[at : at + rows * rank].clone().view(rows, rank)
                pieces.append(torch.linalg.qr(left).Q.reshape(-1))
                at += rows * rank
            out.append(torch.cat(pieces))
        return torch.stack(out)

    def right(self, row: Array, left: Array) -> Array:
        """M^T P of every matrix."""
        import torch

        out = []
        for mine, factors in zip(row, left, strict=True):
            pieces, at = [], 0
            for start, rows, columns, rank in self.matrices:
                matrix = mine[start : start + rows * columns].clone().view(rows, columns)
                pieces.append((matrix.T @ factors[at : at + rows * rank].clone().view(rows, rank)).reshape(-1))
                at += rows * rank
            out.append(torch.cat(pieces))
        return torch.stack(out)

    def rebuilt(self, row: Array, left: Array, right: Array, mean: Array) -> Array:
        """P Q^T of every matrix and the dense mean, in place of the row."""
        import torch

        out = torch.empty_like(row)
        for i in range(row.shape[0]):
            at_left = at_right = 0
            for start, rows, columns, rank in self.matrices:
                p = left[i, at_left : at_left + rows * rank].clone().view(rows, rank)
                q = right[i, at_right : at_right + columns * rank].clone().view(columns, rank)
                out[i, start : start + rows * columns] = (p @ q.T).view(-1)
                at_left, at_right = at_left + rows * rank, at_right + columns * rank
            at = self.rows
            for start, stop in self.dense_bounds:
                out[i, start:stop] = mean[i, at : at + stop - start]
                at += stop - start
        return out


def _first_factors(x: Array, columns: int, seed: int) -> Array:
    """The same random start at every worker."""
    return Draw(seed=seed).shared().signs(max(columns, 1), x.device).repeat(x.shape[0], 1)


STRATEGY = PowerSGD
