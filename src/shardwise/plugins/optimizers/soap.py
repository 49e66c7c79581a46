"""SOAP: Adam in the eigenbasis of Shampoo's two factors; AdamW for all other tensors.

Vyas et al., arXiv:2409.11321, with the defaults of the authors' code (nikhilvyas/SOAP): a side of more than 10,000 has
no factor, and bases are renewed every 10 steps. Of a matrix it keeps Adam's two moments, and for each side d (the other
being o) the factor and its basis, d x d each. A step projects the gradient (2 d^2 o FLOPs), projects the update back
(2 d^2 o) and adds to the factor (2 d^2 o). Every tenth step multiplies the factor by the basis (2 d^3), sorts its
columns by an estimate of the eigenvalues (4 d^3), takes a QR decomposition (8/3 d^3 with an explicit Q) and brings the
first moment into the new basis (4 d^2 o).

It needs whole matrices, so whole matrices have owners wherever ZeRO shards (Megatron-Core's
LayerWiseDistributedOptimizer, which takes `--optimizer soap`), and pieces of tensor parallelism are gathered.

`passes_bytes`: the projected gradient written and read twice 12, the root of the second moment 8, its epsilon 8, the
quotient 12, the decay 8, the update written and read 8. Here a run's bases are the identity until step `EVERY` (Adam),
then eigenvectors, then renewed by QR; the authors' code takes them from the first gradient, whose null space leaves
most of them undetermined. QR is priced as timed by side on an H200 (cost/gpu.py); kernels are counted from the code.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

from shardwise.plugins.optimizers._contract import (
    Exchange,
    RunSettings,
    TensorKind,
    TokenSaving,
    UpdateFactoring,
    UpdateGemm,
    UpdateRule,
)

if TYPE_CHECKING:
    from torch import Tensor

LONGEST = 10_000
EVERY = 10


class SOAP(UpdateRule):
    name: ClassVar[str] = "soap"
    summary: ClassVar[str] = "Adam in the basis of Shampoo's factors"
    rest: ClassVar[str] = "adamw"
    by_shape: ClassVar[bool] = True
    exchanges: ClassVar[tuple[Exchange, Exchange, Exchange, Exchange]] = ("none", "owned", "owned", "all-to-all")
    layouts: ClassVar[tuple[str, ...]] = ("gather", "owned", "all-to-all")
    exchange_cut: ClassVar[Exchange] = "gather"
    sent_bytes: ClassVar[float] = 4.0
    product_dtype: ClassVar[str] = "tf32"
    passes_bytes: ClassVar[float] = 56.0
    launches: ClassVar[float] = 24.0
    adaptive: ClassVar[bool] = True
    saves: ClassVar[tuple[TokenSaving, ...]] = (
        TokenSaving(0.40, "0.36B and 0.66B, large batches", "arXiv:2409.11321"),
        TokenSaving(1 - 1 / 1.4, "0.1B, matrix optimizers with tuned baselines", "arXiv:2509.02046"),
        TokenSaving(1 - 1 / 1.1, "1.2B, matrix optimizers with tuned baselines", "arXiv:2509.02046"),
        TokenSaving(1 - 4375 / 5100, "0.12B, at least: before its rate had decayed", "modded-nanogpt, 2024-10-29"),
    )
    assumed: ClassVar[str] = (
        "soap: AdamW for embeddings, head, norms and biases; factors of sides up to 10,000 and their bases beside two "
        "moments for every other matrix, which has one owner where ZeRO shards; a QR decomposition every 10 steps, as "
        "timed by side on an H200; products in TF32, which torch does not take by itself"
    )
    spelled: ClassVar[dict[str, str]] = {"megatron": "soap"}
    decoupled: ClassVar[bool] = True
    every: ClassVar[int] = EVERY

    def covers(self, kind: TensorKind) -> bool:
        return kind == "matrix"

    def factor_bytes(self, rows: float, columns: float, moment_bytes: float) -> float:
        """Two moments in the basis of its factors, so whole too."""
        return moment_bytes * (2.0 * rows * columns + sum(2.0 * side * side for side in _sides(rows, columns)))

    def products(self, rows: float, columns: float) -> Sequence[UpdateGemm]:
        found = []
        for side in _sides(rows, columns):
            other = rows * columns / side
            found += [
                UpdateGemm(side, other, side, 2.0 + 2.0 / EVERY),
                UpdateGemm(side, side, other, 1.0),
                UpdateGemm(side, side, side, 3.0 / EVERY),
            ]
        return found

    def factorings(self, rows: float, columns: float) -> Sequence[UpdateFactoring]:
        return [UpdateFactoring("qr", side, 1.0 / EVERY) for side in _sides(rows, columns)]

    def scratch_bytes(self, rows: float, columns: float) -> float:
        """The projected gradient, its update, and the product that a new basis comes from."""
        return 4.0 * (2.0 * rows * columns + sum(side * side for side in _sides(rows, columns)))

    def stored(self, rows: int, columns: int) -> Mapping[str, tuple[int, ...]]:
        sides = [(name, side) for name, side in (("row", rows), ("column", columns)) if side <= LONGEST]
        both = {f"{name}_{what}": (side, side) for name, side in sides for what in ("factor", "basis")}
        return {"exp_avg": (rows, columns), "exp_avg_sq": (rows, columns), **both}

    def direction(self, whole: "Tensor", state: "dict[str, Tensor]", step: int, settings: RunSettings) -> "Tensor":
        from shardwise.plugins.optimizers._steps import soap

        return soap(whole, state, step, self.every, settings.betas, settings.epsilon)


def _sides(rows: float, columns: float) -> list[float]:
    return [side for side in (rows, columns) if side <= LONGEST]


OPTIMIZER = SOAP()
