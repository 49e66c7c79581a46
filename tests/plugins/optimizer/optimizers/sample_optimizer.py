"""An optimizer for the tests: two matrices' worth of state for each matrix, which it computes with whole."""

from collections.abc import Sequence
from typing import ClassVar

from shardwise.plugins.optimizers import Elements, TensorKind, TensorPieces, UpdateGemm, UpdateRule


class SampleOptimizer(UpdateRule):
    name: ClassVar[str] = "sample-optimizer"
    summary: ClassVar[str] = "a sample for the tests"
    rest: ClassVar[str] = "sgd"
    by_shape: ClassVar[bool] = True
    exchanges = ("none", "gather", "gather", "gather")
    refused: ClassVar[str] = "it is a sample; write --optimizer adamw"

    def covers(self, kind: TensorKind) -> bool:
        return kind == "matrix"

    def state_bytes(self, held: TensorPieces, moment_bytes: float) -> Elements:
        return 2.0 * held.elements * moment_bytes

    def products(self, rows: float, columns: float) -> Sequence[UpdateGemm]:
        return (UpdateGemm(rows, rows, columns, 1.0),)


OPTIMIZER = SampleOptimizer()
