"""Low rank: the row as a nearly square matrix, projected on what one power step finds. Vogels et al. 2019,
arXiv:1905.13727; here without memory of the last step, which is the strategy's (power_sgd) to keep."""

from dataclasses import dataclass
from math import ceil, isqrt
from typing import TYPE_CHECKING, ClassVar

from shardwise.plugins.compressors._contract import Compressor, Payload, check_count, in_blocks
from shardwise.plugins.compressors._draw import Draw

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class LowRank(Compressor):
    name: ClassVar[str] = "low_rank"

    rank: int = 4

    def __post_init__(self) -> None:
        check_count("rank", self.rank, 4096)

    def _shape(self, d: int) -> tuple[int, int, int]:
        columns = max(isqrt(d), 1)
        return ceil(d / columns), columns, min(self.rank, columns)

    def wire_bytes(self, d: int) -> int:
        rows, columns, rank = self._shape(d)
        return 4 * rank * (rows + columns)

    def encode(self, row: "Tensor", draw: Draw) -> Payload:
        import torch

        rows, columns, rank = self._shape(row.numel())
        matrix = in_blocks(row, rows, columns)
        start = draw.signs(columns * rank, row.device).view(columns, rank)
        left = torch.linalg.qr(matrix @ start).Q
        return left, matrix.T @ left

    def decode(self, payload: Payload, d: int, draw: Draw) -> "Tensor":  # noqa: ARG002
        left, right = payload
        return (left @ right.T).reshape(-1)[:d]

    def delta(self, d: int) -> float | None:
        """On average over the start: the direction found holds at least the mean energy of a direction."""
        _, columns, rank = self._shape(d)
        return rank / columns


COMPRESSOR = LowRank
