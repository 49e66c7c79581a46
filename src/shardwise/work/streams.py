"""Residual streams and what mixes them around a block (hyper-connections, arXiv:2512.24880) as work.

With n streams of width h, a narrow product of all of them makes n (n + 2) weights for each token. By what the other
kernels read and write, in widths of h (Megatron-Core, HyperConnectionModule, fused): a weighted sum of the streams is
the block's input (n + 1); its output is put back and the streams are mixed (2n + 1). Backward: of the mix (3n + 2), of
the sum (2n + 1), and the three gradients of the streams are added (4n).
"""

from shardwise.spec.job import Precision
from shardwise.spec.model import Layer, Model
from shardwise.work.layout import Layout
from shardwise.work.ops import Gemm, LayerWork, Pointwise, SavedTensor

KERNELS = 5.0
"""of one block's forward: weights, their balance (Sinkhorn), sum, mix and a copy"""


def streams_work(model: Model, layer: Layer, layout: Layout, precision: Precision) -> LayerWork:
    """Beyond a single stream's norms and additions."""
    n = model.streams
    tokens = layout.tokens / layout.sp
    width = tokens * model.hidden * precision.residual_bytes
    forward, backward = 3 * n + 2, 9 * n + 3
    weights = Gemm("stream weights", tokens, float(n * (n + 2)), n * model.hidden, low_precision=False)
    return LayerWork(
        gemms=(weights,) * layer.blocks,
        pointwise=(Pointwise("streams", layer.blocks * forward * width, layer.blocks * backward * width),),
        # its input is kept as a norm's; its output for the gradient of where it was put
        saved=(SavedTensor("block output", layer.blocks * width),),
        extra_ops=layer.blocks * KERNELS,
        working_bytes=2 * n * width,
    )
