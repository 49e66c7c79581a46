"""Adafactor: of a matrix' second moment only the means of rows and columns, no first moment (Shazeer and Stern,
arXiv:1804.04235), as torch.optim.Adafactor has it.

Vectors keep all of it. Ranks that share a tensor add up their squares by row and by column, then those of the update,
whose size is limited: 4 bytes for a row, a column and two norms. Each of them keeps all means of its piece, which are
below a thousandth of a moment; under FSDP2 torch cuts those of rows. `passes_bytes` are torch's own passes over a
matrix in fp32, kernel by kernel (torch 2.13, optim/_adafactor.py): the weight's norm 4, the second reading of the
gradient for column means and the third for the update 8, the estimate of the second moment written 4, divided 8,
clamped 8, its root 8, times the gradient 8, its norm 4, and read to be added 4.
`launches` as counted in `run`; torch has fewer and waits for the host twice a tensor.
"""

from collections.abc import Mapping
from typing import ClassVar

from shardwise.plugins.optimizers._contract import Elements, TensorKind, TensorPieces, UpdateRule


class Adafactor(UpdateRule):
    name: ClassVar[str] = "adafactor"
    summary: ClassVar[str] = "row and column means of the second moment"
    by_shape: ClassVar[bool] = True
    factored: ClassVar[bool] = True
    sent_bytes: ClassVar[float] = 4.0
    passes_bytes: ClassVar[float] = 56.0
    launches: ClassVar[float] = 45.0
    adaptive: ClassVar[bool] = True
    decoupled: ClassVar[bool] = True

    def state_bytes(self, held: TensorPieces, moment_bytes: float) -> Elements:
        return held.elements * (moment_bytes if held.kind == "vector" else 0.0)

    def factor_bytes(self, rows: float, columns: float, moment_bytes: float) -> float:
        return moment_bytes * (rows + columns)

    def kept_of(self, kind: TensorKind) -> tuple[str, ...]:
        return ("variance",) if kind == "vector" else ()

    def stored(self, rows: int, columns: int) -> Mapping[str, tuple[int, ...]]:
        return {"row_var": (rows, 1), "col_var": (1, columns)}


OPTIMIZER = Adafactor()
