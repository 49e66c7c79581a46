"""Decoders in plain PyTorch, as a user would write them.

Gated models: RMSNorm, no biases, separate projections for queries, keys and values and for gate and up, or (`fused`)
one for each group. The others: LayerNorm, biases, one projection for all three, learned positions, GELU. The head is
untied; there is no rotary embedding and no dropout.
Experts: tokens are dealt to them evenly (as benchmarks with forced balance do), sorted, multiplied in one batched
product, and weighted by the router's own scores, so that every step has the same shapes and drops nothing.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from _step_configs import Config


class Attention(nn.Module):
    def __init__(self, c: Config) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.width = c.heads, c.kv_heads, c.hidden // c.heads
        wide, narrow = c.hidden, c.kv_heads * self.width
        if c.glu and not c.fused:
            self.parts = nn.ModuleList(nn.Linear(c.hidden, size, bias=False) for size in (wide, narrow, narrow))
        else:
            self.qkv = nn.Linear(c.hidden, wide + 2 * narrow, bias=not c.glu)
        self.sizes = (wide, narrow, narrow)
        self.out = nn.Linear(c.hidden, c.hidden, bias=not c.glu)

    def forward(self, x: Tensor) -> Tensor:
        batch, seq, hidden = x.shape
        parts = [part(x) for part in self.parts] if hasattr(self, "parts") else self.qkv(x).split(self.sizes, dim=-1)
        q, k, v = (part.view(batch, seq, -1, self.width).transpose(1, 2) for part in parts)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=self.heads != self.kv_heads)
        return self.out(y.transpose(1, 2).reshape(batch, seq, hidden))


class FeedForward(nn.Module):
    def __init__(self, c: Config) -> None:
        super().__init__()
        self.gated, fused = c.glu, c.glu and c.fused
        self.gate = nn.Linear(c.hidden, c.ffn, bias=False) if c.glu and not fused else None
        self.up = nn.Linear(c.hidden, 2 * c.ffn if fused else c.ffn, bias=not c.glu)
        self.down = nn.Linear(c.ffn, c.hidden, bias=not c.glu)

    def forward(self, x: Tensor) -> Tensor:
        if not self.gated:
            return self.down(F.gelu(self.up(x)))
        gate, up = self.up(x).chunk(2, dim=-1) if self.gate is None else (self.gate(x), self.up(x))
        return self.down(F.silu(gate) * up)


class Experts(nn.Module):
    def __init__(self, c: Config) -> None:
        super().__init__()
        self.count, self.chosen = c.moe_experts, c.moe_topk
        self.router = nn.Linear(c.hidden, c.moe_experts, bias=False)
        self.up = nn.Parameter(torch.empty(c.moe_experts, c.hidden, 2 * c.ffn).normal_(std=0.02))
        self.down = nn.Parameter(torch.empty(c.moe_experts, c.ffn, c.hidden).normal_(std=0.02))

    def forward(self, x: Tensor) -> Tensor:
        flat = x.flatten(0, 1)
        scores = torch.softmax(self.router(flat).float(), dim=-1)
        share, _ = torch.topk(scores, self.chosen, dim=-1)
        expert = torch.arange(share.numel(), device=x.device) % self.count
        order = torch.argsort(expert, stable=True)
        token = order // self.chosen
        sent = flat[token].view(self.count, -1, flat.shape[-1])
        gate, up = torch.bmm(sent, self.up).chunk(2, dim=-1)
        out = torch.bmm(F.silu(gate) * up, self.down).flatten(0, 1)
        weighted = out * share.flatten()[order].unsqueeze(-1).to(out.dtype)
        return torch.zeros_like(flat).index_add(0, token, weighted.to(flat.dtype)).view_as(x)


def norm_of(c: Config) -> nn.Module:
    return nn.RMSNorm(c.hidden, eps=1e-5) if c.glu else nn.LayerNorm(c.hidden)


class Block(nn.Module):
    def __init__(self, c: Config) -> None:
        super().__init__()
        self.before, self.attention = norm_of(c), Attention(c)
        self.between, self.feed_forward = norm_of(c), Experts(c) if c.moe_experts else FeedForward(c)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.before(x))
        return x + self.feed_forward(self.between(x))


class Decoder(nn.Module):
    def __init__(self, c: Config) -> None:
        super().__init__()
        self.config = c
        self.embedding = nn.Embedding(c.vocab, c.hidden)
        self.positions = None if c.glu else nn.Embedding(c.seq, c.hidden)
        self.blocks = nn.ModuleList(Block(c) for _ in range(c.layers))
        self.norm = norm_of(c)
        self.head = nn.Linear(c.hidden, c.vocab, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens)
        if self.positions is not None:
            x = x + self.positions(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.config.recompute == "full" else block(x)
        return self.head(self.norm(x))


def model_flops(c: Config, parameters: int) -> float:
    """Of one step: 6 per parameter in use and token, embeddings aside, and half the attention square."""
    tables = c.vocab * c.hidden + (0 if c.glu else c.seq * c.hidden)
    expert = c.layers * 3 * c.hidden * c.ffn
    used = parameters - tables - (c.moe_experts - c.moe_topk) * expert
    tokens = c.seq * c.micro_batch * c.accum
    return tokens * (6.0 * used + 6.0 * c.layers * c.hidden * c.seq)
