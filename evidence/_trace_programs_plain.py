"""A decoder in plain torch, as repositories that pretrain write it: own norm, rotary embedding in complex numbers,
gated feed-forward or experts whose router decides how many tokens each gets; adapters of low rank by hand."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

ROTARY_BASE = 500000.0


class RmsNorm(nn.Module):
    def __init__(self, width: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(width)), eps

    def forward(self, x: Tensor) -> Tensor:
        wide = x.float()
        return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.eps)).type_as(x) * self.weight


def turns(seq: int, head: int, device: torch.device) -> Tensor:
    rate = 1.0 / (ROTARY_BASE ** (torch.arange(0, head, 2, device=device).float() / head))
    angle = torch.outer(torch.arange(seq, device=device).float(), rate)
    return torch.polar(torch.ones_like(angle), angle)


def turned(x: Tensor, by: Tensor) -> Tensor:
    pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * by[None, :, None, :]).flatten(3).type_as(x)


class Attention(nn.Module):
    def __init__(self, given: dict[str, Any]) -> None:
        super().__init__()
        width, heads, groups = given["hidden_size"], given["num_attention_heads"], given["num_key_value_heads"]
        self.head: int = given.get("head_dim", width // heads)
        self.wq = nn.Linear(width, heads * self.head, bias=False)
        self.wk = nn.Linear(width, groups * self.head, bias=False)
        self.wv = nn.Linear(width, groups * self.head, bias=False)
        self.wo = nn.Linear(heads * self.head, width, bias=False)
        normed = given.get("qk_norm", False)
        self.q_norm, self.k_norm = (RmsNorm(self.head) if normed else nn.Identity() for _ in range(2))

    def forward(self, x: Tensor, by: Tensor) -> Tensor:
        rows, seq, _ = x.shape
        q, k, v = (w(x).view(rows, seq, -1, self.head) for w in (self.wq, self.wk, self.wv))
        q, k = turned(self.q_norm(q), by), turned(self.k_norm(k), by)
        q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=q.shape[1] != k.shape[1])
        found: Tensor = self.wo(y.transpose(1, 2).reshape(rows, seq, -1))
        return found


class FeedForward(nn.Module):
    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.w1, self.w3 = nn.Linear(width, inner, bias=False), nn.Linear(width, inner, bias=False)
        self.w2 = nn.Linear(inner, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.w2(F.silu(self.w1(x)) * self.w3(x))
        return found


class Router(nn.Module):
    def __init__(self, given: dict[str, Any]) -> None:
        super().__init__()
        self.many, self.taken = given["num_experts"], given["num_experts_per_tok"]
        self.gate = nn.Linear(given["hidden_size"], self.many, bias=False)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        weight, chosen = torch.topk(F.softmax(self.gate(x).float(), dim=-1), self.taken, dim=-1)
        return (weight / weight.sum(-1, keepdim=True)).type_as(x), chosen


class LoopedExperts(nn.Module):
    """One expert after another takes the tokens that chose it."""

    def __init__(self, given: dict[str, Any]) -> None:
        super().__init__()
        self.router = Router(given)
        width, inner = given["hidden_size"], given["intermediate_size"]
        self.experts = nn.ModuleList(FeedForward(width, inner) for _ in range(given["num_experts"]))

    def forward(self, given: Tensor) -> Tensor:
        x = given.view(-1, given.shape[-1])
        weight, chosen = self.router(x)
        mask = F.one_hot(chosen, num_classes=len(self.experts)).permute(2, 1, 0)
        out = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            place, token = torch.where(mask[number])
            out.index_add_(0, token, expert(x[token]) * weight[token, place, None])
        return out.view_as(given)


def _grouped(x: Tensor, weights: Tensor, ends: Tensor) -> Tensor:
    found: Tensor = torch._grouped_mm(x.bfloat16(), weights.bfloat16().transpose(-2, -1), offs=ends)
    return found


class GroupedExperts(nn.Module):
    """Tokens are sorted by expert, and one product over groups serves them all."""

    def __init__(self, given: dict[str, Any]) -> None:
        super().__init__()
        self.router = Router(given)
        many, width, inner = given["num_experts"], given["hidden_size"], given["intermediate_size"]
        self.w1, self.w3 = (nn.Parameter(torch.randn(many, inner, width) * 0.02) for _ in range(2))
        self.w2 = nn.Parameter(torch.randn(many, width, inner) * 0.02)

    def forward(self, given: Tensor) -> Tensor:
        x = given.view(-1, given.shape[-1])
        weight, chosen = self.router(x)
        flat = chosen.view(-1)
        order = torch.argsort(flat, stable=True)
        token = order // chosen.shape[-1]
        counts = torch.histc(flat.float(), bins=self.w1.shape[0], min=0, max=self.w1.shape[0])
        ends = counts.cumsum(0).to(torch.int32)
        inputs = x[token]
        h = F.silu(_grouped(inputs, self.w1, ends)) * _grouped(inputs, self.w3, ends)
        y = _grouped(h, self.w2, ends) * weight.view(-1)[order, None]
        return torch.zeros_like(x).index_add_(0, token, y).view_as(given)


class WithShared(nn.Module):
    """Experts that every token goes through, beside the chosen ones."""

    def __init__(self, given: dict[str, Any], routed: nn.Module) -> None:
        super().__init__()
        self.routed = routed
        self.shared = FeedForward(given["hidden_size"], given["intermediate_size"] * given["num_shared_experts"])

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.routed(x) + self.shared(x)
        return found


def _feed_forward(given: dict[str, Any]) -> nn.Module:
    if "num_experts" not in given:
        return FeedForward(given["hidden_size"], given["intermediate_size"])
    routed = GroupedExperts(given) if given["grouped"] else LoopedExperts(given)
    return WithShared(given, routed) if given.get("num_shared_experts") else routed


class Block(nn.Module):
    def __init__(self, given: dict[str, Any]) -> None:
        super().__init__()
        width = given["hidden_size"]
        self.attention_norm, self.attention = RmsNorm(width), Attention(given)
        self.ffn_norm, self.feed_forward = RmsNorm(width), _feed_forward(given)

    def forward(self, x: Tensor, by: Tensor) -> Tensor:
        x = x + self.attention(self.attention_norm(x), by)
        found: Tensor = x + self.feed_forward(self.ffn_norm(x))
        return found


class Decoder(nn.Module):
    def __init__(self, given: dict[str, Any], again: bool = False) -> None:
        super().__init__()
        width = given["hidden_size"]
        self.again = again
        self.head = given.get("head_dim", width // given["num_attention_heads"])
        self.tok_embeddings = nn.Embedding(given["vocab_size"], width)
        self.layers = nn.ModuleList(Block(given) for _ in range(given["num_hidden_layers"]))
        self.norm, self.output = RmsNorm(width), nn.Linear(width, given["vocab_size"], bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.tok_embeddings(tokens)
        by = turns(tokens.shape[1], self.head, tokens.device)
        for layer in self.layers:
            x = checkpoint(layer, x, by, use_reentrant=False) if self.again else layer(x, by)
        found: Tensor = self.output(self.norm(x))
        return found


def next_word(model: nn.Module, tokens: Tensor) -> Tensor:
    logits = model(tokens[:, :-1])
    return F.cross_entropy(logits.flatten(0, 1).float(), tokens[:, 1:].flatten())


class Adapted(nn.Module):
    """A frozen product and one of low rank beside it."""

    def __init__(self, base: nn.Linear, rank: int = 16, alpha: int = 32) -> None:
        super().__init__()
        self.base, self.scale = base, alpha / rank
        like: Any = {"bias": False, "dtype": base.weight.dtype, "device": base.weight.device}
        self.down, self.up = nn.Linear(base.in_features, rank, **like), nn.Linear(rank, base.out_features, **like)
        nn.init.zeros_(self.up.weight)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.base(x) + self.up(self.down(x)) * self.scale
        return found


def adapted(model: nn.Module, blocks: list[nn.Module]) -> nn.Module:
    """`model` frozen, with an adapter beside every product of its blocks."""
    model.requires_grad_(False)
    for block in blocks:
        for part in list(block.modules()):
            for name, inner in list(part.named_children()):
                if isinstance(inner, nn.Linear):
                    setattr(part, name, Adapted(inner))
    return model
