"""A Llama-like decoder that is tuned: every matrix a module of its own, frozen, some with an adapter beside them.

Built from shapes and from nothing of shardwise's work lists; tensors are named where they are made.
"""

import torch
import torch.nn.functional as F
from reference import Norm, rotated, rows, weight
from reference_kernels import FlashAttention, Swiglu
from reference_saved import named
from torch import Tensor, nn

from shardwise.spec.model import Layer, Model

ATTENTION, MLP = ("q_proj", "k_proj", "v_proj", "o_proj"), ("gate_proj", "up_proj", "down_proj")
SCALE = 2.0


class Adapted(nn.Module):
    """y = W x, and where it is a target + 2 B A x; with magnitudes as peft has DoRA."""

    def __init__(self, outputs: int, inputs: int, rank: int, magnitudes: bool) -> None:
        super().__init__()
        self.weight, self.rank = weight(outputs, inputs), rank
        if rank:
            self.a, self.b = weight(rank, inputs), weight(outputs, rank)
        self.magnitude = nn.Parameter(torch.ones(outputs)) if rank and magnitudes else None

    def forward(self, x: Tensor) -> Tensor:
        y = F.linear(x, self.weight)
        if not self.rank:
            return y
        added = F.linear(named("adapter middle", F.linear(x, self.a)), self.b)
        if self.magnitude is None:
            return y + added * SCALE
        norms = torch.linalg.norm(self.weight + SCALE * (self.b @ self.a).detach(), dim=1)
        scale = named("constant", self.magnitude / named("constant", norms.detach()))
        less = named("constant", scale - 1)
        named("outputs before magnitudes", y)
        named("outputs before magnitudes", added)
        named("constant", norms)
        return y + (less * y + scale * added * SCALE)


class TunedBlock(nn.Module):
    def __init__(self, model: Model, layer: Layer, targets: tuple[str, ...], rank: int, magnitudes: bool) -> None:
        super().__init__()
        a, ff = layer.attention, layer.feed_forward
        assert a is not None
        assert ff is not None
        self.a, hidden = a, model.hidden
        queries, keys = a.heads * a.head_dim, a.kv_heads * a.head_dim
        shapes = {
            "q_proj": (queries, hidden), "k_proj": (keys, hidden), "v_proj": (keys, hidden),
            "o_proj": (hidden, queries),
            "gate_proj": (ff.width, hidden), "up_proj": (ff.width, hidden), "down_proj": (hidden, ff.width),
        }  # fmt: skip
        self.linears = nn.ModuleDict(
            {name: Adapted(*shape, rank if name in targets else 0, magnitudes) for name, shape in shapes.items()}
        )
        self.norms = nn.ModuleList(Norm("rms", hidden) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        named("layer input", x)
        y = named("norm output", self.norms[0](x))
        q, k = self._heads("q_proj", y, self.a.heads), self._heads("k_proj", y, self.a.kv_heads)
        v = named("query, key, value", self.linears["v_proj"](y))
        attend = FlashAttention.apply(
            rows(q, self.a.heads), rows(k, self.a.kv_heads), rows(v, self.a.kv_heads)
        )  # fmt: skip
        x = named("norm input", x + self.linears["o_proj"](attend.view(attend.shape[0], x.shape[1], -1)))
        y = named("norm output", self.norms[1](x))
        before = torch.cat([self.linears["gate_proj"](y), self.linears["up_proj"](y)], dim=-1)
        after = Swiglu.apply(named("feed-forward pre-activation", before), None)
        return x + self.linears["down_proj"](named("feed-forward activation", after))

    def _heads(self, name: str, y: Tensor, heads: int) -> Tensor:
        x = self.linears[name](y).view(y.shape[0], y.shape[1], heads, self.a.head_dim)
        return named("query, key, value", rotated(x, self.a.head_dim)).flatten(2)


class TunedDecoder(nn.Module):
    """`first`: so many layers, and the embedding, have neither gradients nor adapters; without `rank` all others are
    trained."""

    def __init__(
        self, model: Model, targets: tuple[str, ...] = (), rank: int = 0, *, magnitudes: bool = False, first: int = 0
    ) -> None:
        super().__init__()
        self.table = weight(model.vocab, model.hidden)
        self.blocks = nn.ModuleList(
            TunedBlock(model, model.kinds[kind], targets if index >= first else (), rank, magnitudes)
            for index, kind in enumerate(model.pattern)
        )
        self.final, self.head = Norm("rms", model.hidden), weight(model.vocab, model.hidden)
        if rank:
            for name, parameter in self.named_parameters():
                parameter.requires_grad_(name.rpartition(".")[2] in ("a", "b", "magnitude"))
        else:
            frozen = [self.table, *(p for block in self.blocks[:first] for p in block.parameters())]
            for parameter in frozen:
                parameter.requires_grad_(False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = F.embedding(named("constant", tokens), self.table)
        for block in self.blocks:
            x = block(x)
        x = named("final norm", self.final(named("final norm", x)))
        losses = named("logits and loss", torch.log_softmax(F.linear(x, self.head).float(), dim=-1))
        return F.nll_loss(losses.flatten(0, 1), named("constant", tokens.flatten()))
