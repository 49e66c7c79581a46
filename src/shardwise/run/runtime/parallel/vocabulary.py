"""A table cut by vocabulary: looked up, and the loss over its logits without one rank seeing them all."""

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from shardwise.run.runtime.fused import fused
from shardwise.run.runtime.parallel.op import AutogradOp
from shardwise.run.runtime.parallel.products import Cut
from shardwise.run.runtime.widened import widened


class VocabularyLookup(AutogradOp):
    """Rows of a table cut by vocabulary; ranks add what they have."""

    @staticmethod
    def forward(ctx: Any, tokens: Tensor, table: Tensor, cut: Cut) -> Tensor:
        first = cut.tp.index * len(table)
        inside = (tokens >= first) & (tokens < first + len(table))
        local = (tokens - first).clamp(0, len(table) - 1)
        ctx.save_for_backward(local, inside)
        ctx.cut, ctx.rows = cut, len(table)
        rows = F.embedding(local, table)
        return cut.summed(rows * inside.unsqueeze(-1).to(table.dtype)) if cut.tp.size > 1 else rows

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor, None]:
        local, inside = ctx.saved_tensors
        whole = ctx.cut.whole(grad)
        whole = whole * inside.unsqueeze(-1).to(grad.dtype) if ctx.cut.tp.size > 1 else whole
        return None, torch.ops.aten.embedding_dense_backward(whole, local, ctx.rows, -1, False), None


@fused()
def _largest(logits: Tensor) -> Tensor:
    return widened(logits.amax(dim=-1))


@fused()
def _exponentials(logits: Tensor, most: Tensor) -> Tensor:
    return torch.exp(widened(logits) - most.unsqueeze(-1)).sum(dim=-1)


@fused()
def _into_gradient(logits: Tensor, lse: Tensor, local: Tensor, inside: Tensor, grad: Tensor) -> None:
    """The softmax less one at the target, times the gradient of the loss, in the place of the logits."""
    columns = torch.arange(logits.shape[-1], device=logits.device)
    target = (columns == local.unsqueeze(-1)) & inside.unsqueeze(-1)
    logits.copy_((torch.exp(widened(logits) - lse.unsqueeze(-1)) - target.to(lse.dtype)) * grad)


class WeighedTargets(NamedTuple):
    """Targets whose losses count by weights of their own, as a policy gradient has them."""

    targets: Tensor
    weights: Tensor
    """in fp32, one for each target"""


Targets = Tensor | WeighedTargets


class TargetScores(NamedTuple):
    """What the ranks know of each token's target once they have joined what each has of the vocabulary."""

    most: Tensor
    """the largest logit"""
    found: Tensor
    """the target's, less that: 0 where it is the largest"""
    total: Tensor
    """logarithm of the sum of exponentials, less the largest logit"""
    local: Tensor
    inside: Tensor
    """the target's place in this rank's part, and whether it is there"""

    @property
    def losses(self) -> Tensor:
        """One for each target."""
        return self.total - self.found


def _scores(logits: Tensor, targets: Tensor, cut: Cut) -> TargetScores:
    comm, tp = cut.comm, cut.tp
    most = comm.all_reduce(_largest(logits), tp, torch.distributed.ReduceOp.MAX)
    local = targets - tp.index * logits.shape[-1]
    inside = (local >= 0) & (local < logits.shape[-1])
    local = local.clamp(0, logits.shape[-1] - 1)
    own = widened(logits.gather(-1, local.unsqueeze(-1)).squeeze(-1)) - most
    found = comm.all_reduce(own * inside, tp)
    total = comm.all_reduce(_exponentials(logits, most), tp).log()
    return TargetScores(most, found, total, local, inside)


def loss_and_hits(logits: Tensor, targets: Tensor, cut: Cut) -> Tensor:
    """For an evaluation: the loss, and how many targets have the largest logit."""
    scores = _scores(logits, targets, cut)
    return torch.stack([scores.losses.sum(), (scores.found >= 0).sum().to(scores.most.dtype)])


def log_probabilities(logits: Tensor, targets: Tensor, cut: Cut) -> Tensor:
    """Of each target."""
    return -_scores(logits, targets, cut).losses


class VocabularyLoss(AutogradOp):
    """Cross entropy, summed over tokens, of logits cut by vocabulary: ranks join their maxima, target logits and sums
    of exponentials. The backward turns the logits into their gradient in place."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, targets: Tensor, cut: Cut, weights: Tensor | None) -> Tensor:
        scores = _scores(logits, targets, cut)
        ctx.save_for_backward(logits, scores.most + scores.total, scores.local, scores.inside)
        ctx.weights = weights
        return (scores.losses if weights is None else scores.losses * weights).sum()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        logits, lse, local, inside = ctx.saved_tensors
        each = grad if ctx.weights is None else grad * ctx.weights.unsqueeze(-1)
        _into_gradient(logits, lse, local, inside, each)
        return logits, None, None, None
