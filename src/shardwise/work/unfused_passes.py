"""Element-wise work where every operation is a kernel of its own: each reads its inputs and writes its output."""

from shardwise.software import Stack
from shardwise.spec.job import Precision
from shardwise.spec.model import FeedForward
from shardwise.work.ops import Pointwise, element_bytes


def unfused_passes(norms: int, blocks: int, copies: int, precision: Precision) -> tuple[Pointwise, ...]:
    """Bytes per element of the residual stream: norms, roundings, residual sums.

    A norm's backward reads gradient and input twice, for the input's and for the weight's gradient. With a residual in
    higher precision each product rounds the norm's output (`copies` of it in all) and widens its gradient, further ones
    are added up, and the gradient that enters a block is rounded."""
    stream, element = precision.residual_bytes, element_bytes(precision)
    rounding = stream + element if stream > element else 0.0
    return (
        Pointwise("norm", 2.0 * norms * stream, 5.0 * norms * stream),
        Pointwise("rounding", copies * rounding, (copies + blocks) * rounding),
        Pointwise("residual", blocks * (2.0 * stream + element), 3.0 * stream * copies),
    )


def activation_passes(ff: FeedForward, stack: Stack) -> tuple[float, float]:
    """Elements of the feed-forward's width that the activation reads and writes, forward and backward."""
    if not stack.kernels.one_kernel_per_op:
        up = 2.0 if ff.glu else 1.0
        return up + 1.0, 2.0 * up + 1.0
    biased = 2.0 * ff.bias  # its gradient is a sum over the tokens, at half of the memory's speed
    if not ff.glu:
        return 2.0, 3.0 + biased
    # activation and product forward; both factors' gradients, the activation's, and those of gate and up side by side
    return 5.0, 9.0 + (0.0 if stack.kernels.separate_projections else 4.0) + biased
