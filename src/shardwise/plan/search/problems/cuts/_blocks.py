"""Graphs to cut: a chain by its sizes, and the blocks of a model's layer."""

from shardwise.plan.search.problems.cuts._build import AttentionSizes, Builder, Heads
from shardwise.plan.search.problems.cuts._graph import CutGraph
from shardwise.spec.job import Precision
from shardwise.spec.model import Attention, Experts, FeedForward, Layer, Model

BLOCKS = ("attention", "mlp", "moe", "layer")


def chain(sizes: list[int], ranks: int, tokens: int, precision: Precision) -> CutGraph:
    """y = Wn · … · W2 · W1 · x with nothing between the products."""
    made = Builder(f"chain {'-'.join(map(str, sizes))}", ranks, tokens, precision)
    last = made.input("x", sizes[0])
    for number, width in enumerate(sizes[1:], 1):
        last = made.matrix(f"w{number}", last, width)
    return made.graph((last,))


def block_of(model: Model, block: str, ranks: int, sequences: int, seq: int, precision: Precision) -> CutGraph:
    """One block of the kind of layer that most of the model's layers with such a block are."""
    layer = _layer_with(model, block)
    made = Builder(f"{model.name} {block}", ranks, sequences * seq, precision)
    x = made.input("x", model.hidden)
    if block == "layer":
        y = _layer(made, model, layer, x, sequences, seq)
    elif block == "attention":
        assert layer.attention is not None
        y = _attention(made, model.hidden, layer.attention, x, sequences, seq)
    elif block == "moe":
        assert layer.experts is not None
        y = _experts(made, model.hidden, layer.experts, x)
    else:
        assert layer.feed_forward is not None
        y = _feed_forward(made, model.hidden, layer.feed_forward, x)
    return made.graph((y,), block)


def _layer_with(model: Model, block: str) -> Layer:
    parts = {"attention": "attention", "mlp": "feed_forward", "moe": "experts"}
    counted = [(model.pattern.count(k), -k) for k, kind in enumerate(model.kinds)
               if block == "layer" or getattr(kind, parts[block]) is not None]  # fmt: skip
    uncut = next((what for kind in model.kinds if kind.attention and (what := _uncut(kind.attention))), "")
    have = [name for name, field in parts.items()
            if any(getattr(kind, field) for kind in model.kinds) and not (uncut and name == "attention")]  # fmt: skip
    cure = f"write {' or '.join(have)}" if have else "write a language model such as llama-3-8b, or --chain"
    if block == "layer" and any(kind.mamba or kind.delta for kind in model.kinds):
        raise ValueError(
            f"block: a layer of {model.name} may be another mixer than attention, which has no cut here; {cure}"
        )
    if block in ("layer", "attention") and uncut:
        raise ValueError(f"block: attention of {model.name} has {uncut}, which has no cut here; {cure}")
    if not counted:
        raise ValueError(f"block: {model.name} has no {block} block; {cure}")
    return model.kinds[-max(counted)[1]]


def _uncut(attention: Attention) -> str:
    return "an output gate" if attention.gated else "pooled keys" if attention.compressed else ""


def _layer(made: Builder, model: Model, layer: Layer, x: str, sequences: int, seq: int) -> str:
    weights = model.hidden * (2 if model.norm_bias else 1)
    normed = layer.norms > 0
    if layer.attention is not None:
        read = made.norm("norm 1", x, weights) if normed else x
        x = made.add("add 1", x, _attention(made, model.hidden, layer.attention, read, sequences, seq))
    if layer.feed_forward is None and layer.experts is None:
        return x
    read = made.norm("norm 2", x, weights) if normed else x
    if layer.experts is not None:
        y = _experts(made, model.hidden, layer.experts, read)
    else:
        assert layer.feed_forward is not None
        y = _feed_forward(made, model.hidden, layer.feed_forward, read)
    return made.add("add 2", x, y)


def _attention(made: Builder, hidden: int, a: Attention, x: str, sequences: int, seq: int) -> str:
    keys = min(a.window or seq, seq)
    windowed = 0 < a.window < seq
    share = (1.0 - 0.5 * keys / seq if windowed else 0.5) if a.causal else 1.0
    sizes = AttentionSizes(sequences, seq, keys, a.heads, a.head_dim, a.value_dim, share, a.causal)
    if a.latent:
        read = _latent(made, a, x)
        context = made.attention("scores", read[0], (Heads(read[1], a.heads), Heads(read[2], 1)), sizes)
    else:
        q = made.matrix("q", x, a.heads * a.head_dim)
        k = made.matrix("k", x, a.kv_heads * a.head_dim)
        v = made.matrix("v", x, a.kv_heads * a.value_dim)
        both = (Heads(k, a.kv_heads), Heads(v, a.kv_heads))
        context = made.attention("scores", q, both, sizes, values_last=True)
    return made.matrix("o", context, hidden)


def _latent(made: Builder, a: Attention, x: str) -> tuple[str, str, str]:
    """MLA: queries, keys with values, and the rotary part of keys that all heads share."""
    down = made.matrix("q down", x, a.q_lora) if a.q_lora else x
    q = made.matrix("q up" if a.q_lora else "q", down, a.heads * a.head_dim)
    latent = made.matrix("kv down", x, a.kv_lora)
    kv = made.matrix("kv up", latent, a.heads * (a.head_dim - a.rope_dim + a.value_dim))
    return q, kv, made.matrix("k rotary", x, a.rope_dim)


def _feed_forward(made: Builder, hidden: int, ff: FeedForward, x: str, prefix: str = "") -> str:
    reads = [made.matrix(f"{prefix}gate", x, ff.width)] if ff.glu else []
    reads.append(made.matrix(f"{prefix}up", x, ff.width))
    return made.matrix(f"{prefix}down", made.activation(f"{prefix}activation", *reads), hidden)


def _experts(made: Builder, hidden: int, e: Experts, x: str) -> str:
    scores = made.matrix("router", x, e.count, low_precision=False)
    seen = made.matrix("latent down", x, e.latent) if e.latent else x
    copies = made.dispatch("dispatch", seen, e.top_k, e.count)
    reads = [made.matrix("expert gate", copies, e.width)] if e.glu else []
    reads.append(made.matrix("expert up", copies, e.width))
    back = made.matrix("expert down", made.activation("expert activation", *reads), e.latent or hidden)
    y = made.combine("combine", back, scores, e.top_k)
    y = made.matrix("latent up", y, hidden) if e.latent else y
    if not e.shared_width:
        return y
    shared = FeedForward(width=e.shared_width, glu=e.glu)
    return made.add("add shared", y, _feed_forward(made, hidden, shared, x, "shared "))
