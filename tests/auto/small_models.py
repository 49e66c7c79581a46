"""Small models as people write them, each with something that a split must get right."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

WORDS, WIDTH, HEADS, TOKENS, SAMPLES = 48, 32, 4, 12, 8


class NormedBlock(nn.Module):
    """Queries and keys are normed head by head with weights that all heads share; keys and values are of two heads."""

    def __init__(self) -> None:
        super().__init__()
        size = WIDTH // HEADS
        self.norm1, self.norm2 = nn.RMSNorm(WIDTH), nn.RMSNorm(WIDTH)
        self.q, self.o = nn.Linear(WIDTH, WIDTH, bias=False), nn.Linear(WIDTH, WIDTH, bias=False)
        self.k, self.v = nn.Linear(WIDTH, WIDTH // 2, bias=False), nn.Linear(WIDTH, WIDTH // 2, bias=False)
        self.q_norm, self.k_norm = nn.RMSNorm(size), nn.RMSNorm(size)
        self.gate, self.up = nn.Linear(WIDTH, 48, bias=False), nn.Linear(WIDTH, 48, bias=False)
        self.down = nn.Linear(48, WIDTH, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm1(x)
        shape = (*y.shape[:-1], -1, WIDTH // HEADS)
        q = self.q_norm(self.q(y).view(shape)).transpose(1, 2)
        k = self.k_norm(self.k(y).view(shape)).transpose(1, 2)
        v = self.v(y).view(shape).transpose(1, 2)
        k, v = (each.repeat_interleave(2, 1) for each in (k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.o(y.transpose(1, 2).flatten(2))
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class FusedBlock(nn.Module):
    """One product for queries, keys and values; whole sizes are written into every view."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 64), nn.Linear(64, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        B, T, C = x.shape
        q, k, v = self.qkv(self.norm1(x)).split(C, dim=2)
        q, k, v = (each.view(B, T, HEADS, C // HEADS).transpose(1, 2) for each in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(B, T, C))
        return x + self.down(F.relu(self.up(self.norm2(x))))


class ScaledAttention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(WIDTH))
        self.q, self.k, self.v, self.o = (nn.Linear(WIDTH, WIDTH) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        x = x * self.scale
        q, k, v = (each(x).unflatten(-1, (-1, WIDTH // HEADS)).transpose(1, 2) for each in (self.q, self.k, self.v))
        q = q * self.scale[: WIDTH // HEADS]
        return self.o(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))


class ScaledBlock(nn.Module):
    """One scale for what enters attention and for the queries of every head."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention = ScaledAttention()
        self.feed = nn.Sequential(nn.Linear(WIDTH, 48), nn.GELU(), nn.Linear(48, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.feed(self.norm2(x))


class SinkAttention(nn.Module):
    """A weight for each head takes part in its softmax, written out."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.o = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.k, self.v = nn.Linear(WIDTH, WIDTH // 2), nn.Linear(WIDTH, WIDTH // 2)
        self.sinks = nn.Parameter(torch.randn(HEADS))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (each(x).unflatten(-1, (-1, WIDTH // HEADS)).transpose(1, 2) for each in (self.q, self.k, self.v))
        k, v = (each.repeat_interleave(2, 1) for each in (k, v))
        scores = q @ k.transpose(2, 3) + torch.full((TOKENS, TOKENS), -torch.inf, dtype=x.dtype).triu(1)
        sinks = self.sinks.reshape(1, -1, 1, 1).expand(q.shape[0], -1, q.shape[-2], -1)
        shares = torch.cat([scores, sinks], -1).softmax(-1)[..., :-1]
        return self.o((shares @ v).transpose(1, 2).flatten(2))


class SinkBlock(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention = SinkAttention()
        self.feed = nn.Sequential(nn.Linear(WIDTH, 48), nn.GELU(), nn.Linear(48, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.feed(self.norm2(x))


class LatentAttention(nn.Module):
    """Keys and values of all heads come from a few latent features; one rotary key is shared by all heads."""

    def __init__(self) -> None:
        super().__init__()
        self.heads, self.size, self.rotary, self.latent = HEADS, 8, 4, 12
        self.q_a, self.q_norm = nn.Linear(WIDTH, 16, bias=False), nn.RMSNorm(16)
        self.q_b = nn.Linear(16, HEADS * (self.size + self.rotary), bias=False)
        self.kv_a, self.kv_norm = nn.Linear(WIDTH, self.latent + self.rotary, bias=False), nn.RMSNorm(self.latent)
        self.kv_b = nn.Linear(self.latent, HEADS * 2 * self.size, bias=False)
        self.o = nn.Linear(HEADS * self.size, WIDTH, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        B, T, _ = x.shape
        q = self.q_b(self.q_norm(self.q_a(x))).view(B, T, self.heads, -1).transpose(1, 2)
        latent, key = self.kv_a(x).split([self.latent, self.rotary], -1)
        own, v = self.kv_b(self.kv_norm(latent)).view(B, T, self.heads, -1).transpose(1, 2).chunk(2, -1)
        turned = (key * torch.linspace(0, 1, T, dtype=x.dtype)[:, None].cos()).unsqueeze(1)
        k = torch.cat([own, turned.expand(-1, self.heads, -1, -1)], -1)
        y = F.scaled_dot_product_attention(q, k, F.pad(v, (0, self.rotary)), is_causal=True)
        return self.o(y[..., : self.size].transpose(1, 2).flatten(2))


class LatentBlock(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention = LatentAttention()
        self.feed = nn.Sequential(nn.Linear(WIDTH, 48), nn.GELU(), nn.Linear(48, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.feed(self.norm2(x))


class WideNormAttention(nn.Module):
    """Queries are normed over all heads at once, and all heads share one key and one value."""

    def __init__(self) -> None:
        super().__init__()
        self.heads = HEADS
        size = WIDTH // HEADS
        self.q, self.o = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.k, self.v = nn.Linear(WIDTH, size, bias=False), nn.Linear(WIDTH, size)
        self.q_norm = nn.RMSNorm(WIDTH, eps=1e-6)

    def forward(self, x: Tensor, bias: Tensor) -> Tensor:
        B, T, _ = x.shape
        q = self.q_norm(self.q(x)).view(B, T, self.heads, -1).transpose(1, 2).reshape(B * self.heads, T, -1)
        k, v = (each(x).repeat_interleave(self.heads, 0) for each in (self.k, self.v))
        scores = bias.baddbmm(q, k.transpose(1, 2))  # a row for every sample and head
        y = (scores.softmax(-1) @ v).view(B, self.heads, T, -1).transpose(1, 2)
        return self.o(y.reshape(B, T, -1))


class WideNormBlock(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention = WideNormAttention()
        self.feed = nn.Sequential(nn.Linear(WIDTH, 48), nn.GELU(), nn.Linear(48, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        B = x.shape[0]
        places = torch.arange(TOKENS, dtype=x.dtype)
        slopes = torch.arange(1, HEADS + 1, dtype=x.dtype).view(-1, 1, 1) / HEADS
        x = x + self.attention(self.norm1(x), (slopes * places).repeat(B, 1, 1))
        return x + self.feed(self.norm2(x))


class Chosen(nn.Module):
    """Experts whose weights lie in one tensor each."""

    def __init__(self) -> None:
        super().__init__()
        self.experts = 4
        self.up, self.down = (nn.Parameter(torch.randn(4, *shape) / 6) for shape in ((WIDTH, 24), (24, WIDTH)))

    def forward(self, tokens: Tensor, chosen: Tensor, weights: Tensor) -> Tensor:
        made = torch.zeros_like(tokens)
        for expert in range(self.experts):
            token, choice = (chosen == expert).nonzero(as_tuple=True)
            y = F.silu(tokens[token] @ self.up[expert]) @ self.down[expert]
            made = made.index_add(0, token, y * weights[token, choice, None])
        return made


class ExpertBlock(NormedBlock):
    def __init__(self) -> None:
        super().__init__()
        self.router, self.chosen, self.norm3 = nn.Linear(WIDTH, 4), Chosen(), nn.RMSNorm(WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        x = super().forward(x)
        y = self.norm3(x).flatten(0, 1)
        weights, chosen = self.router(y).softmax(-1).topk(2, -1)
        return x + self.chosen(y, chosen, weights).view(x.shape)


class Biased(Chosen):
    """Gates and values lie in turn in one tensor, and every expert has biases."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Parameter(torch.randn(4, WIDTH, 48) / 6)
        self.up_bias, self.down_bias = nn.Parameter(torch.randn(4, 48) / 6), nn.Parameter(torch.randn(4, WIDTH) / 6)

    def forward(self, tokens: Tensor, chosen: Tensor, weights: Tensor) -> Tensor:
        made = torch.zeros_like(tokens)
        for expert in range(self.experts):
            token, choice = (chosen == expert).nonzero(as_tuple=True)
            y = tokens[token] @ self.up[expert] + self.up_bias[expert]
            y = (F.silu(y[..., ::2]) * y[..., 1::2]) @ self.down[expert] + self.down_bias[expert]
            made = made.index_add(0, token, y * weights[token, choice, None])
        return made


class BiasedBlock(ExpertBlock):
    def __init__(self) -> None:
        super().__init__()
        self.chosen = Biased()


class EachExpert(nn.Module):
    """Every expert takes all tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.experts = 4
        self.up, self.down = (nn.Parameter(torch.randn(4, *shape) / 6) for shape in ((WIDTH, 24), (24, WIDTH)))

    def forward(self, rows: Tensor) -> Tensor:
        rows = rows.view(self.experts, -1, WIDTH)
        return (F.silu(rows @ self.up) @ self.down).view(-1, WIDTH)


class EachBlock(NormedBlock):
    def __init__(self) -> None:
        super().__init__()
        self.router, self.each, self.norm3 = nn.Linear(WIDTH, 4), EachExpert(), nn.RMSNorm(WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        x = super().forward(x)
        y = self.norm3(x).flatten(0, 1)
        weights = self.router(y).sigmoid().t().reshape(-1, 1)
        return x + self.each(y.repeat(4, 1) * weights).view(4, *x.shape).sum(0)


class PlainAttention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(WIDTH, WIDTH) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (each(x).unflatten(-1, (-1, WIDTH // HEADS)).transpose(1, 2) for each in (self.q, self.k, self.v))
        return self.o(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))


class WideBlock(nn.Module):
    """Attention and feed-forward are modules of their own, so that tokens may be shared out around them."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention = PlainAttention()
        self.feed = nn.Sequential(nn.Linear(WIDTH, 48), nn.GELU(), nn.Linear(48, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.feed(self.norm2(x))


class SwitchBlock(WideBlock):
    """Experts in place of the feed-forward."""

    def __init__(self) -> None:
        super().__init__()
        self.feed, self.router = Chosen(), nn.Linear(WIDTH, 4, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        y = self.norm2(x).flatten(0, 1)
        weights, chosen = self.router(y).softmax(-1).topk(2, -1)
        return x + self.feed(y, chosen, weights).view(x.shape)


class MixingBlock(nn.Module):
    """Between its two products every channel meets every other: nothing can be cut."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, 64), nn.Linear(64, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(F.softmax(self.up(x), -1))


CHANNELS, STATES = 16, 4


class GatedNorm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(CHANNELS))
        self.epsilon = 1e-6

    def forward(self, x: Tensor, gate: Tensor) -> Tensor:
        x = x * F.silu(gate)
        return self.weight * x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.epsilon)


class Scan(nn.Module):
    """A convolution of single channels that reads its weight by hand, states that all channels share, and a norm over
    all channels. `chosen`: states are made of all channels."""

    def __init__(self, *, chosen: bool) -> None:
        super().__init__()
        self.norm = GatedNorm()
        states = 0 if chosen else 2 * STATES
        self.mixed = CHANNELS + states
        self.into = nn.Linear(WIDTH, self.mixed + CHANNELS)
        self.conv = nn.Conv1d(self.mixed, self.mixed, 3, groups=self.mixed)
        self.states = nn.Linear(CHANNELS, 2 * STATES) if chosen else None
        self.decay = nn.Parameter(torch.rand(CHANNELS, STATES))
        self.out = nn.Linear(CHANNELS, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        inner, gate = self.into(x).split([self.mixed, CHANNELS], -1)
        inner = F.conv1d(F.pad(inner.transpose(1, 2), (2, 0)), self.conv.weight, self.conv.bias, groups=inner.shape[-1])
        inner = F.silu(inner).transpose(1, 2)
        if self.states is not None:
            keys, values = self.states(inner).chunk(2, -1)
        else:
            inner, keys, values = inner.split([CHANNELS, STATES, STATES], -1)
        state, made = torch.zeros(*inner.shape[::2], STATES, dtype=x.dtype), []
        for token in range(x.shape[1]):
            state = state * torch.exp(-self.decay) + inner[:, token, :, None] * keys[:, token, None]
            made.append((state * values[:, token, None]).sum(-1))
        return self.out(self.norm(torch.stack(made, 1), gate))


class ScanBlock(nn.Module):
    def __init__(self, *, chosen: bool = False) -> None:
        super().__init__()
        self.before, self.scan = nn.LayerNorm(WIDTH), Scan(chosen=chosen)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.scan(self.before(x))


class ChosenBlock(ScanBlock):
    def __init__(self) -> None:
        super().__init__(chosen=True)


class Tiny(nn.Module):
    """Words, blocks, and a head that shares the table's weight."""

    def __init__(self, block: type[nn.Module], *, tied: bool = True, blocks: int = 2) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.blocks = nn.ModuleList(block() for _ in range(blocks))
        self.norm = (nn.RMSNorm if issubclass(block, NormedBlock) else nn.LayerNorm)(WIDTH)
        self.head = nn.Linear(WIDTH, WORDS, bias=False)
        if tied:
            self.head.weight = self.words.weight

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.words(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def batch() -> Tensor:
    return torch.randint(0, WORDS, (SAMPLES, TOKENS))


def step(model: nn.Module, optimizer: torch.optim.Optimizer, tokens: Tensor) -> None:
    logits = model(tokens)
    F.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten()).backward()
    nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    optimizer.step()
    optimizer.zero_grad()


def program(block: type[nn.Module], *, tied: bool = True, steps: int = 3, dtype: str = "float64", blocks: int = 2):
    from shardwise.run.auto.program import program_of

    def build():
        model = Tiny(block, tied=tied, blocks=blocks)
        return model, torch.optim.AdamW(model.parameters(), lr=1e-2)

    return program_of(build, batch, step, steps, dtype)
