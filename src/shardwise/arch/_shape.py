"""A Model from a bare shape, for tables that print layers, width and heads and nothing else."""

from shardwise.spec.model import Attention, Experts, FeedForward, Layer, Model


def model_from_shape(
    name: str,
    layers: int,
    hidden: int,
    heads: int,
    kv_heads: int,
    ffn: int,
    glu: bool,
    vocab: int,
    *,
    tied: bool,
    experts: int | None = None,
    top_k: int | None = None,
    head_dim: int | None = None,
    expert_ffn: int | None = None,
    shared_ffn: int = 0,
    dense_layers: int = 0,
    positions: int = 2048,
) -> Model:
    """Gated models get RMSNorm, rotary and no biases; the others LayerNorm, biases, `positions` learned rows.

    With experts, `ffn` is their width unless `expert_ffn` says it; the first `dense_layers` layers have none.
    """
    if head_dim is None and hidden % heads:
        raise ValueError(f"model {name}: heads is {heads}; write a divisor of hidden {hidden}, or give head_dim")
    if not 1 <= layers <= 4096 or not 0 <= dense_layers <= layers:
        raise ValueError(
            f"model {name}: layers {layers}, dense_layers {dense_layers}; write 1 to 4096, dense <= layers"
        )
    attention = Attention(
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim or hidden // heads,
        bias_qkv=not glu,
        bias_out=not glu,
    )
    dense = Layer(attention=attention, feed_forward=FeedForward(width=ffn, glu=glu, bias=not glu))
    kinds: tuple[Layer, ...] = (dense,)
    pattern = (0,) * layers
    if experts:
        if top_k is None:
            raise ValueError(f"model {name}: has {experts} experts but no top_k; write how many a token visits")
        routed = Experts(count=experts, top_k=top_k, width=expert_ffn or ffn, glu=glu, shared_width=shared_ffn)
        sparse = Layer(attention=attention, experts=routed)
        kinds = (dense, sparse) if dense_layers else (sparse,)
        pattern = (0,) * dense_layers + (len(kinds) - 1,) * (layers - dense_layers)
    if glu:
        return Model(name=name, family="llama", hidden=hidden, vocab=vocab, kinds=kinds, pattern=pattern, tied=tied)
    return Model(
        name=name,
        family="gpt2",
        hidden=hidden,
        vocab=vocab,
        kinds=kinds,
        pattern=pattern,
        norm="layer",
        norm_bias=True,
        tied=tied,
        positions=positions,
        rotary=False,
        dropout=True,
    )
