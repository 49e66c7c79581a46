"""Shampoo: the gradient of a matrix between inverse roots of its two factors, in blocks; AdamW for all other tensors.

Gupta et al., arXiv:1802.09568, as Distributed Shampoo has it (Shi et al., arXiv:2309.06497, and the code of
facebookresearch/optimizers): matrices are cut into blocks of at most 1,024 x 1,024, step sizes are Adam's (grafting).
Of a matrix it keeps a first moment and Adam's second, and for each side b of a block the factor and its inverse root,
b x b each. A step adds to both factors of a block of b rows and c columns (2 b^2 c + 2 b c^2 FLOPs) and multiplies by
both roots (as many). Every hundredth step decomposes each factor into eigenvectors (9 b^3) and multiplies them out
again (2 b^3).

A block's owner computes it and sends the update to the others. Here whole matrices have owners wherever ZeRO shards,
and pieces of tensor parallelism are blocks by themselves: nothing is sent for those.

`passes_bytes`: the gradient read again 4, the root of the second moment 8, its epsilon 8, the quotient 12, two norms 8,
the update scaled 8, the decay 8. Eigenvectors are priced as timed by side on an H200 (cost/gpu.py); kernels are
counted from the code.
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

BLOCK = 1024.0
EVERY = 100


class Shampoo(UpdateRule):
    name: ClassVar[str] = "shampoo"
    summary: ClassVar[str] = "gradients between roots of two factors, by block"
    rest: ClassVar[str] = "adamw"
    by_shape: ClassVar[bool] = True
    exchanges: ClassVar[tuple[Exchange, Exchange, Exchange, Exchange]] = ("none", "owned", "owned", "all-to-all")
    layouts: ClassVar[tuple[str, ...]] = ("gather", "owned", "all-to-all")
    sent_bytes: ClassVar[float] = 4.0
    product_dtype: ClassVar[str] = "tf32"
    passes_bytes: ClassVar[float] = 56.0
    launches: ClassVar[float] = 24.0
    adaptive: ClassVar[bool] = True
    saves: ClassVar[tuple[TokenSaving, ...]] = (
        TokenSaving(0.25, "0.36B and 0.66B: SOAP's 40 % less the 20 % it gains on Shampoo", "arXiv:2409.11321"),
        TokenSaving(1 - 4500 / 5100, "0.12B, at least: before its rate had decayed", "modded-nanogpt, 2024-10-29"),
    )
    assumed: ClassVar[str] = (
        "shampoo: AdamW for embeddings, head, norms and biases; every other matrix in blocks of up to 1,024 x 1,024, "
        "with two factors and their inverse roots beside two moments, and one owner where ZeRO shards; eigenvectors "
        "every 100 steps, as timed by side on an H200"
    )
    decoupled: ClassVar[bool] = True
    every: ClassVar[int] = EVERY
    block: ClassVar[int] = int(BLOCK)

    def covers(self, kind: TensorKind) -> bool:
        return kind == "matrix"

    def factor_bytes(self, rows: float, columns: float, moment_bytes: float) -> float:
        """Two moments, and of every block two factors and their roots."""
        blocks = sum(2.0 * times * (b * b + c * c) for b, c, times in _blocks(rows, columns))
        return moment_bytes * (2.0 * rows * columns + blocks)

    def products(self, rows: float, columns: float) -> Sequence[UpdateGemm]:
        found = []
        for b, c, times in _blocks(rows, columns):
            found += [UpdateGemm(b, c, b, times), UpdateGemm(b, c, c, times)]
            found += [UpdateGemm(b, b, c, times), UpdateGemm(c, c, b, times)]
            found += [UpdateGemm(side, side, side, times / EVERY) for side in (b, c)]
        return found

    def factorings(self, rows: float, columns: float) -> Sequence[UpdateFactoring]:
        return [
            UpdateFactoring("eigh", side, times / EVERY) for b, c, times in _blocks(rows, columns) for side in (b, c)
        ]

    def scratch_bytes(self, rows: float, columns: float) -> float:
        """The update, and of a block what its eigenvectors are computed in."""
        return 4.0 * (rows * columns + 3.0 * min(BLOCK, max(rows, columns)) ** 2)

    def stored(self, rows: int, columns: int) -> Mapping[str, tuple[int, ...]]:
        blocks = _blocks(rows, columns)
        both = {
            name: (int(sum(times * block[side] ** 2 for *block, times in blocks)),)
            for side, names in enumerate((("row_factor", "row_root"), ("column_factor", "column_root")))
            for name in names
        }
        return {"exp_avg": (rows, columns), "exp_avg_sq": (rows, columns), **both}

    def direction(self, whole: "Tensor", state: "dict[str, Tensor]", step: int, settings: RunSettings) -> "Tensor":
        from shardwise.plugins.optimizers._steps import shampoo

        return shampoo(whole, state, step, self.every, self.block, settings.betas, settings.epsilon)


def _blocks(rows: float, columns: float) -> list[tuple[float, float, float]]:
    """(rows, columns, how many) of the blocks: whole ones, and what is left over at two edges and a corner."""
    (tall, low), (wide, narrow) = divmod(rows, BLOCK), divmod(columns, BLOCK)
    every = [(BLOCK, BLOCK, tall * wide), (low, BLOCK, wide), (BLOCK, narrow, tall), (low, narrow, 1.0)]
    return [(b, c, times) for b, c, times in every if b and c and times]


OPTIMIZER = Shampoo()
