"""A Mamba-2 mixer as work: two products, a short convolution, the scan, a gated norm.

The scan (SSD, arXiv:2405.21060 section 6) cuts the sequence into chunks of Q positions. Inside a chunk it multiplies as
attention without a softmax does; each chunk leaves a state of N numbers per channel, and the states are passed along.
For G groups and H heads of P channels a token takes

    2 Q N G      C Bᵀ, once for a group
    2 Q P H / 2  those scores times the inputs, the upper triangle skipped
    2 N P H      the chunk's state
    2 N P H      what the states before it give to the output

FLOP, a few percent of the layer's. The products are small and between the kernels everything goes through memory, so
bytes make up its time: inputs are read by two kernels, the output is written once, and states (fp32, N/Q of them per
channel and token) are written, passed on and read (mamba-ssm's Triton kernels).

Tensor parallelism cuts by heads and groups; context parallelism exchanges the sequence for heads before the convolution
and back after the scan (Megatron-Core, MambaContextParallel).
"""

from shardwise.spec.job import Precision
from shardwise.spec.model import Mamba, Model
from shardwise.work.context_parallel import heads_for_sequence
from shardwise.work.layout import Layout
from shardwise.work.ops import Gemm, LayerWork, Pointwise, SavedTensor, Scan, element_bytes

STATE_BYTES = 4.0
STATE_PASSES = 4.0
"""states are written by the kernel that makes them, read and written where they are passed on, read for the output"""
KERNELS = 5.0
"""of the forward pass: sums of time steps, chunk states, their passing on, scores, output"""
BACKWARD_STATES = 2.0
"""states and their gradients"""


def mamba_work(model: Model, mamba: Mamba, layout: Layout, precision: Precision) -> LayerWork:
    tokens, tp, element = layout.tokens, layout.tp, element_bytes(precision)
    inner, mixed, projected = (width / tp for width in (mamba.inner, mamba.mixed, mamba.projected))
    convolved = element * tokens * mixed
    gated = element * tokens * inner
    states = STATE_BYTES * tokens * inner * mamba.state / mamba.chunk
    return LayerWork(
        gemms=(
            Gemm("mamba in", tokens, projected, model.hidden),
            Gemm("mamba out", tokens, model.hidden, inner),
        ),
        scan=_scan(mamba, layout, element),
        pointwise=(
            # backward reads the input again, which it must convolve once more, and a gradient, and writes one
            Pointwise("mamba convolution", 2 * convolved, 5 * convolved),
            # reads the scan and its gate; backward also a gradient, and writes two
            Pointwise("mamba gated norm", 3 * gated, 5 * gated),
        ),
        saved=(
            SavedTensor("mamba projected", element * tokens * projected),
            SavedTensor("mamba scanned", gated),
            SavedTensor("mamba output", precision.act_bytes * tokens * inner),
        ),
        collectives=heads_for_sequence(layout, element, (projected, inner)),
        # the gradient of all that was projected, the convolved input made again, states and their gradients
        working_bytes=element * tokens * projected + convolved + 2 * states,
        deferred_bytes=element * tokens * (model.hidden / layout.sp + projected + inner + model.hidden),
    )


def scan_flops_per_token(mamba: Mamba) -> float:
    """Forward, over all heads."""
    scores = 2.0 * mamba.chunk * mamba.state * mamba.groups
    inside = 1.0 * mamba.chunk * mamba.inner
    return scores + inside + 2 * 2.0 * mamba.state * mamba.inner


def _scan(mamba: Mamba, layout: Layout, element: float) -> Scan:
    tp = layout.tp
    inner, both = mamba.inner / tp, (mamba.mixed - mamba.inner) / tp
    states = STATE_BYTES * inner * mamba.state / mamba.chunk
    scores = STATE_BYTES * mamba.chunk * mamba.groups / tp
    # inputs, B and C are read for states and scores and again for the output, which is written
    forward = element * (2 * inner + 2 * both + inner) + STATE_PASSES * states + 2 * scores
    # states and scores are made again; then gradients of states, inputs, B and C, each from all that went in
    backward = forward + element * (4 * inner + 4 * both) + BACKWARD_STATES * STATE_PASSES * states + 4 * scores
    return Scan(layout.tokens * forward, layout.tokens * backward, KERNELS)
