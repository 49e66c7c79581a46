"""Labels of which a different number counts in every sample."""

import torch
from torch import nn
from torch.nn import functional as F
from words import LENGTH, Words, rows


def build() -> tuple[nn.Module, torch.optim.Optimizer]:
    model = Words()
    return model, torch.optim.AdamW(model.parameters(), lr=1e-3)


def batch() -> tuple[torch.Tensor, torch.Tensor]:
    tokens = rows(8)
    lengths = torch.randint(3, LENGTH, (8, 1))
    return tokens, tokens.masked_fill(torch.arange(LENGTH) >= lengths, -100)


def step(model: nn.Module, optimizer: torch.optim.Optimizer, both: tuple[torch.Tensor, torch.Tensor]) -> None:
    tokens, labels = both
    F.cross_entropy(model(tokens).flatten(0, 1), labels.flatten()).backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
