"""A small vision transformer for one process: pictures in, one of ten classes out. shardwise splits it.

    shardwise auto examples/auto_pictures.py --on 4xh100 --device cpu

Every token sees every other (no mask), and the head reads one vector a picture: neither is a reason not to split.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

PIXELS, PATCH, WIDTH, HEADS, LAYERS, CLASSES, PICTURES = 32, 8, 64, 4, 4, 10, 8


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).unflatten(-1, (3, -1, WIDTH // HEADS)).permute(2, 0, 3, 1, 4)
        return self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2, self.attention = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH), Attention()
        self.feed = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.feed(self.norm2(x))


class Pictures(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, WIDTH, PATCH, stride=PATCH)
        self.places = nn.Parameter(torch.randn(1, (PIXELS // PATCH) ** 2, WIDTH) / 50)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, CLASSES)

    def forward(self, pictures: Tensor) -> Tensor:
        x = self.patches(pictures).flatten(2).transpose(1, 2) + self.places
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x).mean(1))


def build() -> tuple[nn.Module, torch.optim.Optimizer]:
    model = Pictures()
    return model, torch.optim.AdamW(model.parameters(), lr=1e-3)


def batch() -> tuple[Tensor, Tensor]:
    return torch.randn(PICTURES, 3, PIXELS, PIXELS), torch.randint(0, CLASSES, (PICTURES,))


def step(model: nn.Module, optimizer: torch.optim.Optimizer, samples: tuple[Tensor, Tensor]) -> None:
    pictures, classes = samples
    F.cross_entropy(model(pictures), classes).backward()
    optimizer.step()
    optimizer.zero_grad()
