"""A mixer of the gated delta rule as work: two products, a short convolution, the recurrence, a gated norm.

The recurrence (arXiv:2412.06464 section 3.3) goes through the sequence in chunks of C positions. For each value head,
with keys of K and values of V channels, it solves a triangular system of the chunk's keys, rewrites keys and values
with it, carries a state of K x V from chunk to chunk and reads the output from state and chunk. The kernels of
flash-linear-attention, which Megatron-Core and transformers call, keep each of these in memory, so bytes make up its
time: per token and value head they read or write (forward)

    K + 2 C      scores of keys with keys, in fp32
    3 C          the triangle inverted, kept in 16 bits
    2 (K + V) + C   rewritten keys and values
    2 K + 2 V + K V / C   the states, and what is left of the values
    2 K + 2 V + K V / C   the output

elements of 2 bytes. Queries and keys are repeated for every value head before. Backward makes the rewritten keys and
values and the states again, then gradients of all of it.

Tensor parallelism cuts by heads; context parallelism exchanges the sequence for heads as it does for Mamba-2.
"""

from shardwise.spec.job import Precision
from shardwise.spec.model import Delta, Model
from shardwise.work.context_parallel import heads_for_sequence
from shardwise.work.layout import Layout
from shardwise.work.ops import Gemm, LayerWork, Pointwise, SavedTensor, Scan, element_bytes

CHUNK = 64.0
KERNELS = 6.0
"""of the forward pass: sums of decays, key scores, triangle, rewriting, states, output"""
RULE_OPS = 103.0
"""operations that calling them costs the host: 1.03 ms where an H200 waits for it (evidence/timed/delta-h200.csv,
4,096 tokens), at megatron-core's 10 us each; backward takes twice that, as elsewhere"""
PREPARING_OPS = 14.0
"""operations before and after: convolution, two norms, two repeats, copies of heads, decay and step, gated norm"""


def delta_work(model: Model, delta: Delta, layout: Layout, precision: Precision) -> LayerWork:
    tokens, tp, element = layout.tokens, layout.tp, element_bytes(precision)
    inner, keys, mixed, projected = (w / tp for w in (delta.inner, delta.keys, delta.mixed, delta.projected))
    repeated = delta.value_heads * delta.key_dim / tp
    width = element * tokens
    triangle = width * delta.value_heads / tp * CHUNK
    return LayerWork(
        gemms=(
            Gemm("delta in", tokens, projected, model.hidden),
            Gemm("delta out", tokens, model.hidden, inner),
        ),
        scan=_scan(delta, layout, element),
        pointwise=(
            # backward reads the input again, which it must convolve once more, and a gradient, and writes one
            Pointwise("delta convolution", 2 * width * mixed, 5 * width * mixed),
            # queries and keys: norms read and write, and each head is copied for its value heads; back the same way
            Pointwise("delta queries and keys", 2 * width * (3 * keys + repeated), 2 * width * (4 * keys + repeated)),
            # reads the output and its gate; backward also a gradient, and writes two
            Pointwise("delta gated norm", 3 * width * inner, 5 * width * inner),
        ),
        saved=(
            SavedTensor("delta projected", width * projected),
            SavedTensor("delta queries and keys before their norm", 2 * width * keys),
            SavedTensor("delta queries, keys and values", width * (2 * repeated + inner)),
            SavedTensor("delta triangles", triangle),
            SavedTensor("delta mixed", width * inner),
            SavedTensor("delta output", precision.act_bytes * tokens * inner),
        ),
        collectives=heads_for_sequence(layout, element, (projected, inner)),
        extra_ops=RULE_OPS + PREPARING_OPS,
        # rewritten keys and values, states and all their gradients, the gradient of what was projected
        working_bytes=width * (projected + 4 * repeated + 4 * inner + 2 * repeated * delta.value_dim / CHUNK),
        deferred_bytes=width * (model.hidden / layout.sp + projected + inner + model.hidden),
    )


def delta_flops_per_token(delta: Delta) -> float:
    """Forward, over all heads: products inside a chunk, and those with its state."""
    key, value = delta.key_dim, delta.value_dim
    return delta.value_heads * 2.0 * (CHUNK * (3 * key + 2 * value) + 3 * key * value)


def _scan(delta: Delta, layout: Layout, element: float) -> Scan:
    key, value, state = delta.key_dim, delta.value_dim, delta.key_dim * delta.value_dim / CHUNK
    scores, rewritten = key + 5 * CHUNK, 2 * (key + value) + CHUNK
    carried = 2 * key + 2 * value + state
    forward = scores + rewritten + 2 * carried
    # again; local gradients of values; those of states; of queries, keys and rewritten keys; of what was rewritten
    back = (2 * key + 2 * value, 3 * key + 3 * value + state, 6 * key + 3 * value + 2 * state)
    backward = rewritten + carried + sum(back) + 3 * (key + value) + CHUNK + 3 * key
    each = layout.tokens * element * delta.value_heads / layout.tp
    return Scan(each * forward, each * backward, KERNELS, "delta")
