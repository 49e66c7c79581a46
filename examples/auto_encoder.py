"""A small encoder that fills in hidden words, as BERT is trained, for one process. shardwise splits it.

    shardwise auto examples/auto_encoder.py --on 4xh100 --device cpu

Blocks norm behind their sums, the head shares the table of words, and the loss is that of some words only.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

WORDS, WIDTH, HEADS, LAYERS, TOKENS, SAMPLES = 128, 64, 4, 4, 32, 8
HIDDEN = 0
"""the word that stands where one is to be found"""


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value, self.out = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        heads = (made.unflatten(-1, (-1, WIDTH // HEADS)).transpose(1, 2)
                 for made in (self.query(x), self.key(x), self.value(x)))  # fmt: skip
        x = self.norm1(x + self.out(F.scaled_dot_product_attention(*heads).transpose(1, 2).flatten(2)))
        return self.norm2(x + self.down(F.gelu(self.up(x))))


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(TOKENS, WIDTH)
        nn.init.normal_(self.words.weight, std=0.1)
        self.norm = nn.LayerNorm(WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.head = nn.Linear(WIDTH, WORDS)
        self.head.weight = self.words.weight

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.norm(self.words(tokens) + self.places(torch.arange(tokens.shape[1], device=tokens.device)))
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def build() -> tuple[nn.Module, torch.optim.Optimizer]:
    model = Encoder()
    return model, torch.optim.AdamW(model.parameters(), lr=1e-3)


def batch() -> Tensor:
    return torch.randint(1, WORDS, (SAMPLES, TOKENS))


def step(model: nn.Module, optimizer: torch.optim.Optimizer, tokens: Tensor) -> None:
    hidden = torch.arange(TOKENS, device=tokens.device) % 4 == 1
    logits = model(tokens.masked_fill(hidden, HIDDEN))
    F.cross_entropy(logits[:, hidden].flatten(0, 1), tokens[:, hidden].flatten()).backward()
    optimizer.step()
    optimizer.zero_grad()
