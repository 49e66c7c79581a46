"""The policy gradient as weights on tokens: an update is then cross entropy whose tokens count differently."""

import torch
from torch import Tensor

EPSILON = 1e-6
"""added to the spread of a group's rewards"""


def advantages(algorithm: str, rewards: Tensor, group: int) -> Tensor:
    """Of each answer. grpo (arXiv:2402.03300): less the group's mean, over its spread; rloo (arXiv:2402.14740): less
    the mean of the others."""
    each = rewards.view(-1, group)
    mean = each.mean(1, keepdim=True)
    if algorithm == "rloo":
        return ((each - mean) * group / (group - 1)).flatten()
    return ((each - mean) / (each.std(1, correction=0, keepdim=True) + EPSILON)).flatten()


def token_weights(advantage: Tensor, now: Tensor, then: Tensor, clip: float) -> tuple[Tensor, Tensor]:
    """What each token's log-probability counts in the gradient of the clipped objective, and which are clipped.

    `now`, `then`: log-probabilities under the weights that train and those that rolled out. The gradient of
    min(r A, clip(r) A) by log r is r A, and 0 where the clipped side is the smaller one."""
    ratio = torch.exp(now - then)
    clipped = torch.where(advantage > 0, ratio > 1.0 + clip, ratio < 1.0 - clip)
    return torch.where(clipped, 0.0, advantage * ratio), clipped
