"""Muon: the momentum of each hidden matrix made orthogonal by five Newton-Schulz steps; AdamW for all other tensors.

Keller Jordan 2024 (kellerjordan.github.io/posts/muon), torch.optim.Muon of torch 2.13 (optim/_muon.py). Embeddings, the
head, norms and biases are AdamW's, as in Megatron-Core (core/optimizer/layer_wise_optimizer.py,
is_managed_by_layer_wise_optimizer: two dimensions, neither embedding nor output). Queries, keys, values, gates and each
expert are matrices of their own (Megatron's `muon_split_qkv`).

With X the matrix laid so that its m rows are the fewer, a step is A = X X', B = b A + c A A, X = a X + B X: 4 m^2 n +
2 m^3 FLOPs. It needs whole matrices. What programs do where these are shared:
- ZeRO 0: every replica computes all of them, with no message (Megatron-Core without the distributed optimizer).
- ZeRO 1: whole matrices are dealt out to ranks by size, largest first (Megatron-Core with it, once called `dist_muon`:
  LayerWiseDistributedOptimizer). ZeRO's own reduction and gather carry everything.
- ZeRO 2 and 3 (FSDP2): the momentum is gathered in 16 bits and every rank computes all matrices (torchtitan pull
  request 3719, `fsdp2-Muon`). Experts of which a rank holds whole ones stay where they are. torchtitan's DistMuon
  (pull request 4060) sends each matrix to one owner and back instead, a round of them under the products of the last:
  layout `all-to-all`.
- Tensor parallelism: the pieces of a matrix are gathered and all ranks compute it (Emerging-Optimizers,
  newton_schulz_tp, mode "duplicated"). Mode "blockwise" sends nothing and orthogonalises pieces, which is another
  update: layout `blockwise`.

`passes_bytes`: gradient and momentum read again and interpolated 12, rounded to 16 bits 6, their norm 2, divided by it
4, the decay 8, the update read 2. `launches`: 8 for these, and for a step three products and two copies that torch
makes before it adds to them. Timed on an H200 (tests/optimizers/test_times.py).
"""

from collections.abc import Sequence
from math import sqrt
from typing import TYPE_CHECKING, ClassVar

from shardwise.plugins.optimizers._contract import (
    Exchange,
    RunSettings,
    TensorKind,
    TokenSaving,
    UpdateGemm,
    UpdateRule,
)

if TYPE_CHECKING:
    from torch import Tensor

STEPS = 5


class Muon(UpdateRule):
    name: ClassVar[str] = "muon"
    summary: ClassVar[str] = "orthogonal momentum of hidden matrices"
    moments: ClassVar[float] = 1.0
    rest: ClassVar[str] = "adamw"
    by_shape: ClassVar[bool] = True
    exchanges: ClassVar[tuple[Exchange, Exchange, Exchange, Exchange]] = ("none", "owned", "gather", "gather")
    layouts: ClassVar[tuple[str, ...]] = ("gather", "owned", "all-to-all", "blockwise")
    exchange_cut: ClassVar[Exchange] = "gather"
    passes_bytes: ClassVar[float] = 34.0
    launches: ClassVar[float] = 33.0
    adaptive: ClassVar[bool] = True
    saves: ClassVar[tuple[TokenSaving, ...]] = (
        TokenSaving(0.48, "0.4B to 1.5B, compute-optimal", "arXiv:2502.16982"),
        TokenSaving(0.10, "0.1B to 4B, the least of 10 to 15 %", "arXiv:2505.02222"),
        TokenSaving(0.15, "0.1B to 4B, the most of 10 to 15 %", "arXiv:2505.02222"),
        TokenSaving(1 - 1 / 1.4, "0.1B, matrix optimizers with tuned baselines", "arXiv:2509.02046"),
        TokenSaving(1 - 1 / 1.1, "1.2B, matrix optimizers with tuned baselines", "arXiv:2509.02046"),
        TokenSaving(1 - 5960 / 10500, "0.35B, to a loss of 2.92 on FineWeb", "modded-nanogpt, 2025-06-15"),
        TokenSaving(1 - 4375 / 5100, "0.12B, at least: before its rate had decayed", "modded-nanogpt, 2024-10-29"),
    )
    assumed: ClassVar[str] = (
        "muon: AdamW for embeddings, head, norms and biases; 5 Newton-Schulz steps on every other matrix. Unless "
        "--matrix-layout says otherwise, each has one owner with ZeRO 1 (Megatron-Core); with ZeRO 2 and 3 all are "
        "gathered in bf16 and every rank computes all (FSDP2); pieces of tensor parallelism are gathered too "
        "(--muon-tp-mode duplicated)"
    )
    spelled: ClassVar[dict[str, str]] = {"megatron": "muon dist_muon", "deepspeed": "Muon", "maxtext": "muon"}
    kept: ClassVar[tuple[str, ...]] = ("momentum_buffer",)
    decoupled: ClassVar[bool] = True

    def covers(self, kind: TensorKind) -> bool:
        return kind == "matrix"

    def products(self, rows: float, columns: float) -> Sequence[UpdateGemm]:
        m, n = min(rows, columns), max(rows, columns)
        return (
            UpdateGemm(m, m, n, STEPS), UpdateGemm(m, m, m, STEPS, adds=True), UpdateGemm(m, n, m, STEPS, adds=True)
        )  # fmt: skip

    def scratch_bytes(self, rows: float, columns: float) -> float:
        """X twice, A and B."""
        m, n = min(rows, columns), max(rows, columns)
        return 2.0 * (2.0 * m * n + 2.0 * m * m)

    def looks_ahead(self, settings: RunSettings) -> bool:
        return settings.momentum > 0

    def stretch(self, rows: int, columns: int) -> float:
        """Rates are those of AdamW, times this (arXiv:2502.16982)."""
        return 0.2 * sqrt(max(rows, columns))

    def sent(self, grad: "Tensor", moment: "Tensor", settings: RunSettings) -> "Tensor":
        moment.lerp_(grad, 1.0 - settings.momentum)
        return grad.lerp(moment, settings.momentum) if settings.nesterov else moment

    def direction(
        self,
        whole: "Tensor",
        state: "dict[str, Tensor]",  # noqa: ARG002
        step: int,  # noqa: ARG002
        settings: RunSettings,  # noqa: ARG002
    ) -> "Tensor":
        from shardwise.plugins.optimizers._steps import orthogonalized

        return orthogonalized(whole, STEPS)


OPTIMIZER = Muon()
