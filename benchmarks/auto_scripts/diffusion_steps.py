"""Noise and times are drawn in the step, as diffusion models do."""

import torch
from torch import nn
from words import WIDTH, Block


class Denoiser(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.into, self.time, self.out = nn.Linear(12, WIDTH), nn.Linear(1, WIDTH), nn.Linear(WIDTH, 12)
        self.blocks = nn.ModuleList(Block() for _ in range(4))

    def forward(self, patches: torch.Tensor, times: torch.Tensor) -> torch.Tensor:
        x = self.into(patches) + self.time(times[:, None]).unsqueeze(1)
        for block in self.blocks:
            x = block(x)
        return self.out(x)


def build() -> tuple[nn.Module, torch.optim.Optimizer]:
    model = Denoiser()
    return model, torch.optim.AdamW(model.parameters(), lr=1e-3)


def batch() -> torch.Tensor:
    return torch.randn(8, 16, 12)


def step(model: nn.Module, optimizer: torch.optim.Optimizer, patches: torch.Tensor) -> None:
    noise, times = torch.randn_like(patches), torch.rand(len(patches))
    mixed = patches.lerp(noise, times[:, None, None])
    (model(mixed, times) - noise).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
