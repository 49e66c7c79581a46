"""A Model from a bare shape, for tables that print layers, width and heads and nothing else."""

from typing import Any

from shardwise.spec.arch._fields import MOST_LAYERS, MOST_WIDTH
from shardwise.spec.model import Attention, Experts, FeedForward, Layer, Model

_GATED: dict[str, Any] = {"family": "llama"}
_PLAIN: dict[str, Any] = {"family": "gpt2", "norm": "layer", "norm_bias": True, "rotary": False, "dropout": True}


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
    counts = {"layers": layers, "hidden": hidden, "heads": heads, "kv_heads": kv_heads, "ffn": ffn, "vocab": vocab}
    _check(name, counts, dense_layers)
    if head_dim is None and hidden % heads:
        raise ValueError(f"model {name}: heads is {heads}; write a divisor of hidden {hidden}, or give head_dim")
    attention = Attention(
        heads=heads, kv_heads=kv_heads, head_dim=head_dim or hidden // heads, bias_qkv=not glu, bias_out=not glu
    )
    kinds: tuple[Layer, ...] = (Layer(attention=attention, feed_forward=FeedForward(width=ffn, glu=glu, bias=not glu)),)
    if experts:
        if top_k is None:
            raise ValueError(f"model {name}: {experts} experts but no top_k; write how many a token visits")
        routed = Experts(count=experts, top_k=top_k, width=expert_ffn or ffn, glu=glu, shared_width=shared_ffn)
        sparse = Layer(attention=attention, experts=routed)
        kinds = (*kinds, sparse) if dense_layers else (sparse,)
    first = dense_layers if len(kinds) == 2 else 0
    form = _GATED if glu else {**_PLAIN, "positions": positions, "context": positions}
    return Model(
        name=name,
        hidden=hidden,
        vocab=vocab,
        kinds=kinds,
        pattern=(0,) * first + (len(kinds) - 1,) * (layers - first),
        tied=tied,
        **form,
    )


def _check(name: str, counts: dict[str, int], dense_layers: int) -> None:
    for field, value in counts.items():
        most = MOST_LAYERS if field == "layers" else MOST_WIDTH
        if not 1 <= value <= most:
            raise ValueError(f"model {name}: {field} is {value}; write a whole number from 1 to {most}")
    if not 0 <= dense_layers <= counts["layers"]:
        raise ValueError(f"model {name}: dense_layers is {dense_layers}; write 0 to {counts['layers']} (its layers)")
