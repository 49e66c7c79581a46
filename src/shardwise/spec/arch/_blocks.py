"""The tensors of one layer: attention or another mixer, feed-forward, experts."""

from collections.abc import Iterator

from shardwise.spec.arch._tensor import Maker, Tensor
from shardwise.spec.model import Attention, CompressedAttention, Delta, Experts, FeedForward, Layer, Mamba


def layer_block(make: Maker, layer: Layer, hidden: int, streams: int) -> Iterator[Tensor]:
    for index in range(layer.norms):
        yield from make.norm(f"norm.{index}", hidden)
    if streams > 1:
        for index in range(layer.blocks):
            # weights of the mix that is read, of the places written to, and of each stream in each
            yield from stream_mixer(make, f"streams.{index}", streams * hidden, streams * (2 + streams), 3)
    for matrix in layer.further:
        yield from make.matrix_of(matrix)
    if layer.attention is not None:
        heads = _latent if layer.attention.latent else _compressed if layer.attention.compressed else _grouped
        yield from heads(make, layer.attention, hidden)
    if layer.cross is not None:
        yield from _crossed(make, layer.cross, hidden, layer.cross_width or hidden)
    for matrix in layer.mixer:
        yield from make.matrix_of(matrix)
    if layer.mamba is not None:
        yield from _mamba(make, layer.mamba, hidden)
    if layer.delta is not None:
        yield from _delta(make, layer.delta, hidden)
    if layer.feed_forward is not None:
        yield from _feed_forward(make, layer.feed_forward, hidden)
    if layer.experts is not None:
        yield from _experts(make, layer.experts, hidden)


def _grouped(make: Maker, a: Attention, hidden: int) -> Iterator[Tensor]:
    queries, keys, values = a.heads * a.head_dim, a.kv_heads * a.head_dim, a.kv_heads * a.value_dim
    gated = queries * (2 if a.gated else 1)
    yield from make.matrix("q", gated, hidden, "column", bias=a.bias_qkv, pieces=a.heads)
    if not a.shares_keys:
        yield from make.matrix("k", keys, hidden, "column", bias=a.bias_qkv, pieces=a.kv_heads)
        if not a.values_are_keys:
            yield from make.matrix("v", values, hidden, "column", bias=a.bias_qkv, pieces=a.kv_heads)
    yield from make.matrix("o", hidden, a.heads * a.value_dim, "row", bias=a.bias_out, pieces=a.heads)
    if a.qk_norm == "head":
        yield from make.norm("q_norm", a.head_dim)
        yield from () if a.shares_keys else make.norm("k_norm", a.head_dim)
    elif a.qk_norm == "full":
        yield from make.norm("q_norm", queries, "column")
        yield from make.norm("k_norm", keys, "column")
    if a.sinks:
        yield make.plain("sinks", (a.heads,), "column", pieces=a.heads)


def _crossed(make: Maker, a: Attention, hidden: int, source: int) -> Iterator[Tensor]:
    queries, keys, values = a.heads * a.head_dim, a.kv_heads * a.head_dim, a.kv_heads * a.value_dim
    yield from make.matrix("cross.q", queries, hidden, "column", bias=a.bias_qkv, pieces=a.heads)
    yield from make.matrix("cross.k", keys, source, "column", bias=a.bias_qkv, pieces=a.kv_heads)
    yield from make.matrix("cross.v", values, source, "column", bias=a.bias_qkv, pieces=a.kv_heads)
    yield from make.matrix("cross.o", hidden, a.heads * a.value_dim, "row", bias=a.bias_out, pieces=a.heads)
    if a.qk_norm == "head":
        yield from make.norm("cross.q_norm", a.head_dim)
        yield from make.norm("cross.k_norm", a.head_dim)


def _latent(make: Maker, a: Attention, hidden: int) -> Iterator[Tensor]:
    """MLA: queries and keys/values go through a narrow latent that every tp rank computes whole."""
    queries, unrotated = a.heads * a.head_dim, a.head_dim - a.rope_dim
    if a.q_lora:
        yield from make.matrix("q_a", a.q_lora, hidden, "none", bias=a.bias_qkv)
        yield from make.norm("q_a_norm", a.q_lora)
        yield from make.matrix("q_b", queries, a.q_lora, "column", pieces=a.heads)
    else:
        yield from make.matrix("q", queries, hidden, "column", pieces=a.heads)
    yield from make.matrix("kv_a", a.kv_lora + a.rope_dim, hidden, "none", bias=a.bias_qkv)
    yield from make.norm("kv_a_norm", a.kv_lora)
    yield from make.matrix("kv_b", a.heads * (unrotated + a.value_dim), a.kv_lora, "column", pieces=a.heads)
    yield from make.matrix("o", hidden, a.heads * a.value_dim, "row", bias=a.bias_out, pieces=a.heads)


def stream_mixer(make: Maker, role: str, width: int, weights: int, scales: int) -> Iterator[Tensor]:
    """What makes `weights` numbers of a token from all its streams, each with an offset, and a scale for each kind."""
    yield make.plain(role, (weights, width), "none", kind="fn", product=True)
    yield make.plain(role, (weights,), "none", kind="base")
    yield make.plain(role, (scales,), "none", kind="scale")


def _compressed(make: Maker, a: Attention, hidden: int) -> Iterator[Tensor]:
    """Every rank computes the narrow query, keys and what is pooled from them."""
    c = a.compressed
    assert c is not None
    inner = a.heads * a.head_dim
    yield from make.matrix("q_a", a.q_lora, hidden, "none")
    yield from make.norm("q_a_norm", a.q_lora)
    yield from make.matrix("q_b", inner, a.q_lora, "column", pieces=a.heads)
    yield from make.matrix("kv", a.head_dim, hidden, "none")
    yield from make.norm("kv_norm", a.head_dim)
    yield from make.matrix("o_a", c.out_groups * c.out_rank, inner // c.out_groups, "column", pieces=c.out_groups)
    yield from make.matrix("o_b", hidden, c.out_groups * c.out_rank, "row", pieces=c.out_groups)
    if a.sinks:
        yield make.plain("sinks", (a.heads,), "column", pieces=a.heads)
    if c.ratio:
        yield from _pooling(make, "pooling", c, a.head_dim, hidden)
    if c.top_k:
        yield from _pooling(make, "indexer", c, c.index_dim, hidden)
        yield from make.matrix("indexer.q_b", c.index_heads * c.index_dim, a.q_lora, "none")
        yield from make.matrix("indexer.weights", c.index_heads, hidden, "none")


def _pooling(make: Maker, role: str, c: CompressedAttention, width: int, hidden: int) -> Iterator[Tensor]:
    wide = c.pooled_width(width)
    yield from make.matrix(f"{role}.kv", wide, hidden, "none")
    yield from make.matrix(f"{role}.gate", wide, hidden, "none")
    yield make.plain(role, (c.ratio, wide), "none", kind="position_bias")
    yield from make.norm(f"{role}.norm", width)


def _mamba(make: Maker, m: Mamba, hidden: int) -> Iterator[Tensor]:
    """Every part of the input product is cut by heads or groups, and so is all that follows."""
    yield from make.matrix("mamba.in", m.projected, hidden, "column", bias=m.bias)
    yield make.plain("mamba.conv", (m.mixed, 1, m.conv), "column")
    if m.conv_bias:
        yield make.plain("mamba.conv", (m.mixed,), "column", kind="bias")
    for name in ("A_log", "D", "dt_bias"):
        yield make.plain("mamba", (m.heads,), "column", kind=name)
    yield make.plain("mamba.norm", (m.inner,), "column")
    yield from make.matrix("mamba.out", hidden, m.inner, "row", bias=m.bias)


def _delta(make: Maker, d: Delta, hidden: int) -> Iterator[Tensor]:
    """Cut by heads, but for the norm: its weights are those of one head, and every head has the same."""
    yield from make.matrix("delta.in", d.mixed + d.inner, hidden, "column", pieces=d.key_heads)
    yield from make.matrix("delta.gates", 2 * d.value_heads, hidden, "column", pieces=d.key_heads)
    yield make.plain("delta.conv", (d.mixed, 1, d.conv), "column", pieces=d.key_heads)
    for name in ("A_log", "dt_bias"):
        yield make.plain("delta", (d.value_heads,), "column", kind=name, pieces=d.value_heads)
    yield make.plain("delta.norm", (d.value_dim,), "none")
    yield from make.matrix("delta.out", hidden, d.inner, "row", pieces=d.key_heads)


def _feed_forward(make: Maker, f: FeedForward, hidden: int, prefix: str = "") -> Iterator[Tensor]:
    if f.glu:
        yield from make.matrix(f"{prefix}gate", f.width, hidden, "column", bias=f.bias)
    yield from make.matrix(f"{prefix}up", f.width, hidden, "column", bias=f.bias)
    yield from make.matrix(f"{prefix}down", hidden, f.width, "row", bias=f.bias)


def _experts(make: Maker, e: Experts, hidden: int) -> Iterator[Tensor]:
    yield from make.matrix("router", e.count, hidden, "none", bias=e.router_bias)
    if e.latent:
        yield from make.matrix("latent.down", e.latent, hidden, "none")
        yield from make.matrix("latent.up", hidden, e.latent, "none")
    seen = e.latent or hidden
    shapes = {"gate": (e.width, seen), "up": (e.width, seen), "down": (seen, e.width)}
    for role in ("gate", "up", "down") if e.glu else ("up", "down"):
        outputs, inputs = shapes[role]
        yield make.plain(f"expert.{role}", (e.count, outputs, inputs), "expert", product=True)
        if e.bias:
            yield make.plain(f"expert.{role}", (e.count, outputs), "expert", kind="bias")
    if e.shared_width:
        shared = FeedForward(width=e.shared_width, glu=e.glu, bias=e.bias)
        yield from _feed_forward(make, shared, hidden, "shared.")
    if e.shared_gate:
        yield from make.matrix("shared_gate", 1, hidden, "none")
