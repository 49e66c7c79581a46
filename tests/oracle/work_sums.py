"""Sums over shardwise's work lists, in the units torch counts in."""

from collections import Counter, defaultdict

import numpy as np

from shardwise.spec.job import PRECISIONS, Job
from shardwise.spec.model import Attention, Experts, FeedForward, Layer, Model
from shardwise.spec.policy import Policies, Policy
from shardwise.spec.software import Stack
from shardwise.work import Work, work_of
from shardwise.work.case import training_of
from shardwise.work.ops import LayerWork

PLAIN_STACK = Stack(name="reference", summary="all defaults", source="tests", date="2026-11-15").changed(
    pads_vocab=False
)


def work(model: Model, policy: Policy, seq: int, *, precision: str = "bf16", stack: Stack = PLAIN_STACK) -> Work:
    job = Job(seq=seq, global_batch=policy.dp * policy.micro_batch, precision=PRECISIONS[precision])
    return work_of(training_of(model, job, stack), Policies.of([policy]), every_stage=True)


def number(value: object) -> float:
    return float(np.asarray(value).reshape(-1)[0])


def product_flops(part: LayerWork) -> float:
    return sum(2.0 * number(g.m) * number(g.n) * number(g.k) * number(g.batch) for g in part.gemms)


def square_flops(part: LayerWork) -> float:
    return number(part.attention.square_flops()) if part.attention is not None else 0.0


def model_flops(found: Work) -> tuple[float, float]:
    """(products, attention squares) of one micro-batch through the whole model, forward, on one rank of each stage."""
    counts = [found.model.pattern.count(kind) for kind in range(len(found.kinds))]
    products = sum(n * product_flops(k) for n, k in zip(counts, found.kinds, strict=True))
    squares = sum(n * square_flops(k) for n, k in zip(counts, found.kinds, strict=True))
    return products + product_flops(found.embedding) + product_flops(found.head), squares


def saved(part: LayerWork) -> dict[str, float]:
    """Bytes kept, by name; tensors of no bytes left out."""
    total: dict[str, float] = defaultdict(float)
    for tensor in part.saved:
        if number(tensor.bytes):
            total[tensor.name] += number(tensor.bytes)
    return dict(total)


def collectives(part: LayerWork, phase: str) -> Counter[tuple[str, float]]:
    """(operation, bytes) -> times per micro-batch."""
    found: Counter[tuple[str, float]] = Counter()
    for item in part.collectives:
        if item.phase == phase and number(item.count):
            found[item.op, number(item.bytes)] += int(number(item.count))
    return found


def gpt(
    hidden: int = 64, heads: int = 4, width: int = 0, vocab: int = 128, layers: int = 2, dropout: bool = True
) -> Model:  # fmt: skip
    attention = Attention(heads=heads, kv_heads=heads, head_dim=hidden // heads, bias_qkv=True, bias_out=True)
    block = Layer(attention=attention, feed_forward=FeedForward(width=width or 4 * hidden, glu=False, bias=True))
    return Model(
        name="gpt", family="gpt2", hidden=hidden, vocab=vocab, kinds=(block,), pattern=(0,) * layers, norm="layer",
        norm_bias=True, tied=True, positions=4096, rotary=False, dropout=dropout,
    )  # fmt: skip


def llama(
    hidden: int = 64, heads: int = 8, kv_heads: int = 4, head_dim: int = 8, width: int = 176, vocab: int = 128,
    layers: int = 2, norms: int = 2, qk_norm: bool = False, bias: bool = False,
) -> Model:  # fmt: skip
    attention = Attention(
        heads=heads, kv_heads=kv_heads, head_dim=head_dim, qk_norm="head" if qk_norm else "none", bias_qkv=bias
    )
    block = Layer(attention=attention, feed_forward=FeedForward(width=width, glu=True), norms=norms)
    return Model(name="llama", family="llama", hidden=hidden, vocab=vocab, kinds=(block,), pattern=(0,) * layers)


def mixtral(
    hidden: int = 64, count: int = 8, top_k: int = 2, width: int = 48, shared: int = 0, layers: int = 2,
    vocab: int = 128,
) -> Model:  # fmt: skip
    attention = Attention(heads=8, kv_heads=4, head_dim=8)
    block = Layer(attention=attention, experts=Experts(count=count, top_k=top_k, width=width, shared_width=shared))
    return Model(name="moe", family="mixtral", hidden=hidden, vocab=vocab, kinds=(block,), pattern=(0,) * layers)


def deepseek(hidden: int = 64, q_lora: int = 24, layers: int = 3, vocab: int = 128) -> Model:
    """Latent attention; the first layer dense, the others with routed and shared experts."""
    attention = Attention(heads=4, kv_heads=4, head_dim=24, v_head_dim=16, q_lora=q_lora, kv_lora=20, rope_dim=8)
    dense = Layer(attention=attention, feed_forward=FeedForward(width=96, glu=True))
    experts = Layer(attention=attention, experts=Experts(count=8, top_k=2, width=32, shared_width=64))
    pattern = (0,) + (1,) * (layers - 1)
    return Model(name="mla", family="deepseek", hidden=hidden, vocab=vocab, kinds=(dense, experts), pattern=pattern)
