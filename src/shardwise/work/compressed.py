"""CompressedAttention attention (DeepSeek-V4, arXiv:2606.19348 section 2.3) as work.

A narrow query is raised to all heads; one vector of a token is key and value to every head. Beside it go pooled
vectors, one of `ratio` tokens, and where an indexer picks among them its queries, keys and scores. It learns from the
attention it stands for: the scores of the heads with what it picked are made once more for it. The output leaves in two
products.

As Megatron-Core does it: the kernels take the same number of keys for every query, those that a first query does not
have included; the pooling, the indexer's weights and the first output product stay out of fp8; the pooling is written
as eight element-wise kernels, most in fp32; the indexer's loss is that of what it picked.
"""

from math import ceil

import numpy as np

from shardwise.spec.job import Precision
from shardwise.spec.message import Message
from shardwise.spec.model import Attention, CompressedAttention, Model
from shardwise.spec.software import Stack
from shardwise.work.layout import Layout
from shardwise.work.modules import UP
from shardwise.work.ops import Attend, Gemm, Index, LayerWork, Pointwise, SavedTensor, element_bytes

KEY_TILE = 64
"""keys are filled up to a multiple of this (FlashMLA on Blackwell)"""
POOLING_BYTES = 46.0
"""of a channel of one token that is pooled, forward: offset added (2 read, 4 written), both tensors laid out for
overlapping windows (6 and 12), softmax (8), weighting (10), sum (4)"""
POOLING_SAVED = 10.0
"""the same, kept: value, weight in fp32, and their product"""
OPS, POOLING_OPS, INDEX_OPS = 30.0, 7.0, 13.0
"""launches beyond plain attention's: norms, rotations and narrow products; of each pooling; of the indexer"""


def compressed_parts(
    model: Model,
    attention: Attention,
    parts: CompressedAttention,
    layout: Layout,
    precision: Precision,
    stack: Stack,
    seq: int,
) -> list[LayerWork]:
    found = [_heads(model, attention, parts, layout, precision, stack, seq)]
    if parts.ratio:
        found.append(_pooling("pooling", model, parts, attention.head_dim, layout, precision))
    if parts.top_k:
        found.append(_pooling("index pooling", model, parts, parts.index_dim, layout, precision))
        found.append(_indexer(model, attention, parts, layout, precision, seq))
    return found


def met_keys(attention: Attention, parts: CompressedAttention, seq: int) -> float:
    """Keys of the window and pooled ones that a query meets, on average over a causal sequence."""
    window = float(min(attention.window, seq))
    near = window - window * window / (2 * seq)
    if not parts.ratio:
        return near
    most = min(parts.top_k * parts.ratio, seq) if parts.top_k else seq
    # the number grows by one every `ratio` tokens, up to what the indexer lets through
    return near + (most - most * most / (2 * seq)) / parts.ratio


def index_flops_per_token(parts: CompressedAttention, seq: int) -> float:
    """Forward: scores of all pooled keys before a query, half of them on average."""
    return 2.0 * parts.index_heads * parts.index_dim * seq / (2 * parts.ratio) if parts.top_k else 0.0


def _heads(
    model: Model,
    attention: Attention,
    parts: CompressedAttention,
    layout: Layout,
    precision: Precision,
    stack: Stack,
    seq: int,
) -> LayerWork:
    tokens, tp = layout.tokens, layout.tp
    width = element_bytes(precision) * tokens
    query = attention.heads * attention.head_dim / tp
    group = attention.heads * attention.head_dim / parts.out_groups
    low, grouped = attention.q_lora + attention.head_dim, parts.out_groups * parts.out_rank / tp
    turned = attention.rope_dim / attention.head_dim
    far = min(parts.top_k or seq, seq // parts.ratio) if parts.ratio else 0
    return LayerWork(
        gemms=(
            Gemm("q down", tokens, attention.q_lora, model.hidden),
            Gemm("q up", tokens, query, attention.q_lora, latent_up=True, repeated_by=UP),
            Gemm("kv", tokens, attention.head_dim, model.hidden),
            # each group of heads has a matrix of its own, all of one shape
            Gemm("attention out by group", tokens * parts.out_groups / tp, parts.out_rank, group, low_precision=False),
            Gemm("attention out", tokens, model.hidden, grouped),
        ),
        attention=_gathered(attention, min(attention.window, seq) + far, layout),
        pointwise=(
            Pointwise("latent norms", 8.0 * tokens * low, 16.0 * tokens * low),
            # every head is normed and a part of it turned in place; the output is turned back into another tensor, and
            # both are kept (Megatron-LM pull request 7036 ends that)
            Pointwise("heads", width * query * (4 + 2 * turned), width * query * (5 + 2 * turned), repeated_by=UP),
        ),
        saved=(
            SavedTensor("latents", 2 * width * low),
            SavedTensor(
                "query before its norm and after",
                2 * width * query,
                "selective" if stack.memory.latent_recompute == "up" else "full",
                UP,
            ),
            SavedTensor("attention output and turned back", 2 * width * query),
            SavedTensor("attention output by group", width * grouped),
            SavedTensor("log-sum-exp", 4.0 * tokens * attention.heads / tp),
        ),
        extra_ops=OPS,
        working_bytes=3 * width * query,
        deferred_bytes=width * (model.hidden / layout.sp + attention.q_lora + 2 * query + grouped + 2 * model.hidden),
    )


def _gathered(attention: Attention, keys: float, layout: Layout) -> Attend:
    width, heads = float(attention.head_dim), attention.heads / layout.tp
    keys = float(ceil(keys / KEY_TILE) * KEY_TILE)
    return Attend(layout.sequences, layout.local_seq, keys, heads, width, width, keys, 1.0, gathered=True)


def _pooling(
    name: str, model: Model, parts: CompressedAttention, width: int, layout: Layout, precision: Precision
) -> LayerWork:
    """Vectors of this width; every tensor-parallel rank pools all of them. Context parallelism: each gathers what all
    have pooled; a window reaches into the rank before, which is little (arXiv:2606.19348 section 3)."""
    wide = float(parts.pooled_width(width))
    product = Gemm(name, layout.tokens, wide, model.hidden, low_precision=False)
    passed = POOLING_BYTES * layout.tokens * wide
    on = (layout.cp > 1).astype(np.float64)
    pooled = element_bytes(precision) * layout.cp * layout.tokens * width / parts.ratio
    return LayerWork(
        # values and weights
        gemms=(product, product),
        pointwise=(Pointwise(name, passed, 2 * passed),),
        saved=(SavedTensor(name, POOLING_SAVED * layout.tokens * wide),),
        collectives=(
            Message("pooled keys", "all_gather", "cp", pooled, on, "forward"),
            Message("pooled keys", "reduce_scatter", "cp", pooled, on, "backward"),
        ),
        extra_ops=POOLING_OPS,
    )


def _indexer(
    model: Model, attention: Attention, parts: CompressedAttention, layout: Layout, precision: Precision, seq: int
) -> LayerWork:
    tokens, inner = layout.tokens, parts.index_heads * parts.index_dim
    width, keys = element_bytes(precision) * tokens, seq / parts.ratio
    picked = float(min(parts.top_k, keys))
    # queries are turned in part and rotated whole (Hadamard); scores are written in fp32 and read to pick from
    turned = width * (2 * inner + 2 * parts.index_heads * attention.rope_dim)
    return LayerWork(
        gemms=(
            Gemm("index queries", tokens, float(inner), attention.q_lora),
            Gemm("index weights", tokens, float(parts.index_heads), model.hidden, low_precision=False),
        ),
        index=Index(
            heads=float(parts.index_heads),
            head_dim=float(parts.index_dim),
            groups=layout.sequences * parts.index_heads,
            keys=keys,
            score_flops=tokens * index_flops_per_token(parts, seq),
            picked=picked,
            taught=_gathered(attention, picked, layout),
            # of its queries and of its keys
            gradient_flops=tokens * 2.0 * 2.0 * inner * picked,
        ),
        pointwise=(Pointwise("index", turned + 2 * 4.0 * tokens * keys, turned),),
        saved=(SavedTensor("index queries and choice", width * inner + 4.0 * tokens * picked),),
        extra_ops=INDEX_OPS,
    )
