"""Decoder layers as plain torch modules, built from a model's shapes and from nothing of shardwise's work lists.

`Split` cuts them as Megatron does; without one they are the whole layer. Tensors are named where they are made, so that
a test can say which of them autograd kept.
"""

import torch
import torch.nn.functional as F
from reference_kernels import FlashAttention, RmsNorm, Swiglu
from reference_saved import named
from reference_split import CopyIn, Exchange, GatherIn, ScatterOut, Split, VocabLoss, column, row, summed
from torch import Tensor, nn

from shardwise.spec.model import Attention, Experts, FeedForward, Layer, Model

DROP = 0.1
# tiny tensors: a second thread only waits, and on a busy machine the test waits for it
torch.set_num_threads(1)


def weight(*shape: int) -> nn.Parameter:
    return nn.Parameter(torch.randn(*shape) * 0.02)


def bias(wanted: bool, width: int) -> nn.Parameter | None:
    return nn.Parameter(torch.zeros(width)) if wanted else None


def dropped(x: Tensor, name: str) -> Tensor:
    """torch's fused dropout keeps one byte per element."""
    y, mask = torch.native_dropout(x, DROP, True)
    named(name, mask)
    return y


class Norm(nn.Module):
    def __init__(self, kind: str, width: int) -> None:
        super().__init__()
        self.kind, self.weight = kind, nn.Parameter(torch.ones(width))
        self.bias = bias(kind == "layer", width)

    def forward(self, x: Tensor) -> Tensor:
        if self.kind == "rms":
            return RmsNorm.apply(x, self.weight)
        y, mean, inverse = torch.native_layer_norm(x, x.shape[-1:], self.weight, self.bias, 1e-5)
        named("statistics", mean)
        named("statistics", inverse)
        return y


class EagerNorm(Norm):
    """RMS norm in single operations, in fp32, as the original Llama code has it."""

    def forward(self, x: Tensor) -> Tensor:
        wide = named("norm in fp32", x.float())
        inverse = named("statistics", torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-5))
        return named("norm in model dtype", (wide * inverse).type_as(x)) * self.weight


def rotated(x: Tensor, width: int) -> Tensor:
    """Rotary positions on [sequence, batch, heads, width]."""
    angles = torch.arange(x.shape[0], device=x.device).float().unsqueeze(1) / 10000 ** (
        torch.arange(width // 2, device=x.device).float() * 2 / width
    )
    angles = torch.cat([angles, angles], dim=-1).view(x.shape[0], 1, 1, width)
    cos, sin = (named("constant", f(angles).to(x.dtype)) for f in (torch.cos, torch.sin))
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat([-second, first], dim=-1) * sin


def rows(x: Tensor, heads: int) -> Tensor:
    """[sequence, batch, heads x width] -> [batch x heads, sequence, width], a view."""
    sequence, batch, wide = x.shape
    return x.view(sequence, batch * heads, wide // heads).transpose(0, 1)


def plain_attention(q: Tensor, k: Tensor, v: Tensor, dropout: bool) -> Tensor:
    many = q.shape[0] // k.shape[0]
    if many > 1:
        k, v = k.repeat_interleave(many, dim=0), v.repeat_interleave(many, dim=0)
    empty = q.new_empty(q.shape[0], q.shape[1], k.shape[1])
    scores = torch.baddbmm(empty, q, k.transpose(1, 2), beta=0, alpha=q.shape[-1] ** -0.5)
    ban = torch.full(scores.shape[1:], -1e4, device=q.device, dtype=q.dtype).triu(1)
    weights = named("softmax", torch.softmax(scores + ban, dim=-1))
    if dropout:
        weights = named("attention dropout", dropped(weights, "attention dropout"))
    return named("attention output", torch.bmm(weights, v).transpose(0, 1).contiguous())


class GroupedAttention(nn.Module):
    def __init__(self, model: Model, a: Attention, split: Split, plain: bool) -> None:
        super().__init__()
        self.model, self.a, self.split, self.plain = model, a, split, plain
        self.heads, self.groups = a.heads // split.tp, max(a.kv_heads // split.tp, 1)
        self.widths = [self.heads * a.head_dim, self.groups * a.head_dim, self.groups * a.value_dim]
        self.qkv = weight(sum(self.widths), model.hidden)
        self.qkv_bias = bias(a.bias_qkv, sum(self.widths))
        self.out = weight(model.hidden, self.heads * a.value_dim)
        self.out_bias = bias(a.bias_out, model.hidden)
        if a.qk_norm == "head":
            self.q_norm, self.k_norm = Norm("rms", a.head_dim), Norm("rms", a.head_dim)

    def forward(self, x: Tensor) -> Tensor:
        fused = named("query, key, value", column(x, self.qkv, self.split, self.qkv_bias))
        if self.model.rotary or self.a.qk_norm != "none" or self.heads != self.groups:
            # new tensors for queries and keys: values must not keep the whole product alive
            q, k, v = fused.split(self.widths, dim=-1)
            q, k, v = self._positioned(q, self.heads), self._positioned(k, self.groups), v.clone()
            named("query, key, value", v)
            q, k, v = rows(q, self.heads), rows(k, self.groups), rows(v, self.groups)
        else:
            # columns lie head by head, so that all three are views of the one product
            q, k, v = rows(fused, self.heads).chunk(3, dim=-1)
        attend = plain_attention(q, k, v, self.model.dropout) if self.plain else FlashAttention.apply(q, k, v)
        return row(attend.view(attend.shape[0], x.shape[1], -1), self.out, self.split, self.out_bias)

    def _positioned(self, x: Tensor, heads: int) -> Tensor:
        x = x.view(x.shape[0], x.shape[1], heads, self.a.head_dim)
        if self.a.qk_norm == "head":
            x = named("query and key before norm", x.clone())
            x = (self.q_norm if heads == self.heads else self.k_norm)(x)
        if self.model.rotary:
            x = rotated(x, self.a.head_dim)
        return named("query, key, value", x).flatten(2)


class LatentAttention(nn.Module):
    """MLA: tensor-parallel ranks compute the narrow latents whole, of their own tokens under sequence parallelism."""

    def __init__(self, model: Model, a: Attention, split: Split, plain: bool) -> None:
        super().__init__()
        self.a, self.split, self.plain, self.heads = a, split, plain, a.heads // split.tp
        self.nope = a.head_dim - a.rope_dim
        if a.q_lora:
            self.q_down, self.q_norm = weight(a.q_lora, model.hidden), Norm("rms", a.q_lora)
        self.q_up = weight(self.heads * a.head_dim, a.q_lora or model.hidden)
        self.kv_down, self.kv_norm = weight(a.kv_lora + a.rope_dim, model.hidden), Norm("rms", a.kv_lora)
        self.kv_up = weight(self.heads * (self.nope + a.value_dim), a.kv_lora)
        self.out = weight(model.hidden, self.heads * a.value_dim)

    def forward(self, x: Tensor) -> Tensor:
        a, split = self.a, self.split
        q = x
        if a.q_lora:
            q = named("latents", self.q_norm(named("latents", F.linear(x, self.q_down))))
        q = column(q, self.q_up, split).unflatten(-1, (self.heads, a.head_dim))
        latent, position = named("latents", F.linear(x, self.kv_down)).split([a.kv_lora, a.rope_dim], dim=-1)
        kv = column(named("latents", self.kv_norm(latent)), self.kv_up, split).unflatten(-1, (self.heads, -1))
        keys, values = kv.split([self.nope, a.value_dim], dim=-1)
        position = rotated(self._shared(position).unsqueeze(2), a.rope_dim)
        q = torch.cat([q[..., : self.nope], rotated(q[..., self.nope :], a.rope_dim)], dim=-1)
        k = torch.cat([keys, position.expand(-1, -1, self.heads, -1)], dim=-1)
        whole = [named("query, key, value", t.contiguous()) for t in (q, k, values)]
        q, k, v = (rows(t.flatten(2), self.heads) for t in whole)
        attend = plain_attention(q, k, v, False) if self.plain else FlashAttention.apply(q, k, v)
        return row(attend.view(attend.shape[0], x.shape[1], -1), self.out, split)

    def _shared(self, position: Tensor) -> Tensor:
        """The rotary part of the keys is the same for all heads, so every rank needs it for the whole sequence."""
        if self.split.sp:
            return GatherIn.apply(position, self.split.tp, self.split.group(self.split.tp))
        return column_input(position, self.split)


def column_input(x: Tensor, split: Split) -> Tensor:
    return CopyIn.apply(x, split.group(split.tp)) if split.tp > 1 else x


class Mlp(nn.Module):
    def __init__(
        self, hidden: int, ff: FeedForward, split: Split, name: str = "feed-forward", *, eager: bool = False
    ) -> None:
        super().__init__()
        width = ff.width // split.tp
        self.glu, self.split, self.name, self.eager = ff.glu, split, name, eager
        up = width * (2 if ff.glu else 1)
        self.up, self.up_bias = weight(up, hidden), bias(ff.bias, up)
        self.down, self.down_bias = weight(hidden, width), bias(ff.bias, hidden)

    def forward(self, x: Tensor) -> Tensor:
        before = named(f"{self.name} pre-activation", column(x, self.up, self.split, self.up_bias))
        if self.glu and self.eager:
            gate, up = before.chunk(2, dim=-1)
            after = named(f"{self.name} gate", F.silu(gate)) * up
        else:
            after = Swiglu.apply(before, None) if self.glu else F.gelu(before)
        return row(named(f"{self.name} activation", after), self.down, self.split, self.down_bias)


class Moe(nn.Module):
    """Top-k experts with forced balanced routing: copies go to the experts in turn, so that shapes are fixed."""

    def __init__(self, hidden: int, e: Experts, split: Split, *, weigh_output: bool = False) -> None:
        super().__init__()
        self.e, self.split, self.weigh_output = e, split, weigh_output
        owned, width = e.count // split.ep, e.width // split.etp
        self.router = weight(e.count, hidden)
        self.up, self.down = weight(owned, hidden, 2 * width), weight(owned, width, hidden)
        shared = FeedForward(width=e.shared_width, glu=True)
        self.shared = Mlp(hidden, shared, split, "shared") if e.shared_width else None
        self.extra_loss = torch.zeros(())

    def forward(self, x: Tensor) -> Tensor:
        e, flat = self.e, x.flatten(0, 1)
        logits = named("router scores", F.linear(flat, self.router).float())
        spread = named("statistics", torch.logsumexp(logits, dim=-1))
        self.extra_loss = spread.square().mean()
        scores = named("router scores", torch.softmax(logits, dim=-1))
        copy = torch.arange(len(flat) * e.top_k, device=x.device).view(-1, e.count).t().flatten()
        token, expert = named("constant", copy // e.top_k), copy % e.count
        flat_index = named("constant", token * e.count + expert)
        share = named("routing weights", scores.flatten().index_select(0, flat_index)).unsqueeze(-1)
        sent = flat.index_select(0, token).view(e.count, -1, flat.shape[-1])
        out = self._return(self._run(self._dispatch(sent), self._dispatch(share.view(e.count, -1, 1), small=True)))
        out = out.view(-1, flat.shape[-1])
        if self.weigh_output:
            out = (named("expert output", out) * share).to(x.dtype)
        # index_add would keep the outputs only to know their shape
        y = torch.zeros_like(flat, dtype=out.dtype).index_put((token,), out, accumulate=True).view_as(x)
        return y if self.shared is None else y + self.shared(x)

    def _run(self, tokens: Tensor, share: Tensor) -> Tensor:
        before = named("expert pre-activation", torch.bmm(named("routed tokens", tokens), self.up))
        after = Swiglu.apply(before, None if self.weigh_output else named("routing weights", share))
        return torch.bmm(named("expert activation", after), self.down)

    def _dispatch(self, x: Tensor, small: bool = False) -> Tensor:
        """[experts, copies, width] of this rank's tokens -> copies from all ranks for the experts it owns."""
        split = self.split
        if small:
            # one number per copy travels with the token; its bytes are not counted
            return x.view(split.ep, -1, *x.shape[1:])[0].repeat(1, split.ep * split.etp, 1)
        if split.ep > 1:
            x = Exchange.apply(x, split.group(split.ep))
            x = x.view(split.ep, -1, *x.shape[1:]).transpose(0, 1).flatten(1, 2)
        if split.etp > 1:
            x = GatherIn.apply(x.transpose(0, 1), split.etp, split.group(split.etp)).transpose(0, 1)
        return x.contiguous()

    def _return(self, x: Tensor) -> Tensor:
        split = self.split
        if split.etp > 1:
            x = ScatterOut.apply(x.transpose(0, 1), split.etp, split.group(split.etp)).transpose(0, 1)
        if split.ep > 1:
            x = x.reshape(x.shape[0], split.ep, -1, x.shape[-1]).transpose(0, 1).flatten(0, 1)
            x = Exchange.apply(x, split.group(split.ep))
        return x.contiguous()


class Block(nn.Module):
    def __init__(
        self, model: Model, layer: Layer, split: Split | None = None, *, plain: bool = False, eager: bool = False,
        weigh_output: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        split = split or Split()
        assert layer.attention is not None
        attention = LatentAttention if layer.attention.latent else GroupedAttention
        make_norm = EagerNorm if eager else Norm
        self.dropout = model.dropout
        self.norms = nn.ModuleList(make_norm(model.norm, model.hidden) for _ in range(layer.norms))
        self.attention = attention(model, layer.attention, split, plain)
        if layer.experts is not None:
            self.inner: nn.Module = Moe(model.hidden, layer.experts, split, weigh_output=weigh_output)
        else:
            assert layer.feed_forward is not None
            self.inner = Mlp(model.hidden, layer.feed_forward, split, eager=eager)

    def forward(self, x: Tensor) -> Tensor:
        named("layer input", x)
        x = named("norm input", x + self._branch(self.attention, 0, x))
        return x + self._branch(self.inner, 1, x)

    def _branch(self, module: nn.Module, index: int, x: Tensor) -> Tensor:
        y = module(named("norm output", self.norms[index](x)))
        if len(self.norms) == 4:
            y = self.norms[index + 2](named("post-norm input", y))
        return dropped(y, "dropout mask") if self.dropout else y


class Embedding(nn.Module):
    def __init__(self, model: Model, split: Split) -> None:
        super().__init__()
        self.split, self.dropout = split, model.dropout
        self.table = weight(model.vocab // split.tp, model.hidden)
        self.positions = weight(model.positions, model.hidden) if model.positions else None

    def forward(self, tokens: Tensor) -> Tensor:
        """[sequence, batch] -> [sequence, batch, width]"""
        inside = tokens % self.table.shape[0]
        x = summed(F.embedding(named("constant", inside), self.table), self.split)
        if self.positions is not None:
            places = named("constant", torch.arange(x.shape[0], device=x.device))
            x = x + F.embedding(places, self.positions).unsqueeze(1)
        return dropped(x, "embedding dropout mask") if self.dropout else x


class Ending(nn.Module):
    """Final norm, vocabulary product and loss."""

    def __init__(self, model: Model, split: Split, table: nn.Parameter) -> None:
        super().__init__()
        self.split, self.final = split, Norm(model.norm, model.hidden)
        self.head = table if model.tied else weight(*table.shape)

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        x = named("final norm", self.final(named("final norm", x)))
        logits = column(x, self.head, self.split)
        if self.split.tp > 1:
            return VocabLoss.apply(logits, target, self.split.group(self.split.tp))
        losses = named("logits and loss", torch.log_softmax(logits.float(), dim=-1))
        return F.nll_loss(losses.flatten(0, 1), named("constant", target.flatten()))


class Decoder(nn.Module):
    def __init__(self, model: Model, split: Split | None = None, *, plain: bool = False) -> None:
        super().__init__()
        split = split or Split()
        self.embedding = Embedding(model, split)
        self.blocks = nn.ModuleList(Block(model, model.kinds[k], split, plain=plain) for k in model.pattern)
        self.ending = Ending(model, split, self.embedding.table)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        loss = self.ending(x, tokens)
        extra = [block.inner.extra_loss for block in self.blocks if isinstance(block.inner, Moe)]
        return loss + sum(extra) if extra else loss
