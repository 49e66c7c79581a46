"""A small language model with experts in every block, for one process. shardwise splits it.

    shardwise auto examples/auto_experts.py --on 4xh100 --device cpu
    shardwise auto examples/auto_experts.py --on 2xh100 --fix ep=2      # whole experts on each rank
    shardwise auto examples/auto_experts.py --on 2xh100 --fix tp=2      # a part of every expert on each rank

The weights of all experts of a block lie in one tensor each, and a module of their own takes tokens, choices and how
much each choice counts: so ranks can share them out either way.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

WORDS, WIDTH, HEADS, LAYERS, TOKENS, SAMPLES = 128, 64, 4, 4, 32, 8
EXPERTS, CHOSEN, EXPERT_WIDTH = 4, 2, 96


class Experts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.count = EXPERTS
        self.up = nn.Parameter(torch.randn(EXPERTS, WIDTH, EXPERT_WIDTH) / WIDTH**0.5)
        self.down = nn.Parameter(torch.randn(EXPERTS, EXPERT_WIDTH, WIDTH) / EXPERT_WIDTH**0.5)

    def forward(self, tokens: Tensor, chosen: Tensor, weights: Tensor) -> Tensor:
        total = torch.zeros_like(tokens)
        for expert in range(self.count):
            token, choice = (chosen == expert).nonzero(as_tuple=True)
            made = F.silu(tokens[token] @ self.up[expert]) @ self.down[expert]
            total = total.index_add(0, token, made * weights[token, choice, None])
        return total


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.RMSNorm(WIDTH), nn.RMSNorm(WIDTH)
        self.q, self.k, self.v, self.o = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4))
        self.router, self.experts = nn.Linear(WIDTH, EXPERTS, bias=False), Experts()

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm1(x)
        q, k, v = (w(y).unflatten(-1, (-1, WIDTH // HEADS)).transpose(1, 2) for w in (self.q, self.k, self.v))
        x = x + self.o(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        y = self.norm2(x).flatten(0, 1)
        weights, chosen = self.router(y).softmax(-1).topk(CHOSEN, -1)
        return x + self.experts(y, chosen, weights).view_as(x)


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm, self.head = nn.RMSNorm(WIDTH), nn.Linear(WIDTH, WORDS, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.words(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def build() -> tuple[nn.Module, torch.optim.Optimizer]:
    model = Model()
    return model, torch.optim.AdamW(model.parameters(), lr=1e-3)


def batch() -> Tensor:
    return torch.randint(0, WORDS, (SAMPLES, TOKENS))


def step(model: nn.Module, optimizer: torch.optim.Optimizer, tokens: Tensor) -> None:
    logits = model(tokens)
    F.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten()).backward()
    optimizer.step()
    optimizer.zero_grad()
