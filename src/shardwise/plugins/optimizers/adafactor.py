"""Adafactor: of a matrix' second moment only the means of rows and columns, no first moment (Shazeer and Stern,
arXiv:1804.04235), as torch.optim.Adafactor has it.

Vectors keep all of it. Ranks that share a tensor cut it along its first dimension: row means are cut with it, column
means are there on each. Adding those up takes 4 bytes a column and rank, below a thousandth of the gradients, and is
not counted. `passes_bytes` are torch's own passes over a matrix in fp32, kernel by kernel (torch 2.13,
optim/_adafactor.py): the weight's norm 4, the second reading of the gradient for column means and the third for the
update 8, the estimate of the second moment written 4, divided 8, clamped 8, its root 8, times the gradient 8, its norm
4, and read to be added 4.
"""

from typing import ClassVar

from shardwise.plugins.optimizers._contract import Elements, TensorPieces, UpdateRule


class Adafactor(UpdateRule):
    name: ClassVar[str] = "adafactor"
    summary: ClassVar[str] = "row and column means of the second moment"
    by_shape: ClassVar[bool] = True
    passes_bytes: ClassVar[float] = 56.0
    launches: ClassVar[float] = 20.0
    adaptive: ClassVar[bool] = True
    refused: ClassVar[str] = "its row and column means have no shards in a checkpoint here; write --optimizer adamw"

    def state_bytes(self, held: TensorPieces, moment_bytes: float) -> Elements:
        if held.kind == "vector":
            return held.elements * moment_bytes
        return held.number * (held.rows + held.columns) * moment_bytes


OPTIMIZER = Adafactor()
