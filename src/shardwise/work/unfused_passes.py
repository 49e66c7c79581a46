"""Element-wise work where every operation is a kernel of its own: each reads its inputs and writes its output."""

from shardwise.spec.job import Precision
from shardwise.spec.model import FeedForward
from shardwise.spec.software import Stack
from shardwise.work.ops import Pointwise, element_bytes


def unfused_passes(
    norms: int, blocks: int, copies: int, precision: Precision, *, fused_norm: bool
) -> tuple[Pointwise, ...]:
    """Bytes per element of the residual stream: norms, roundings, residual sums.

    A norm's backward reads gradient and input twice, for the input's and for the weight's gradient. With a residual in
    higher precision each product rounds the norm's output (`copies` of it in all) and widens its gradient, further ones
    are added up, and the gradient that enters a block is rounded."""
    stream, element = precision.residual_bytes, element_bytes(precision)
    rounding = stream + element if stream > element else 0.0
    forward, backward = (2.0 * stream, 5.0 * stream) if fused_norm else written_out_norm(min(stream, element))
    return (
        Pointwise("norm", norms * forward, norms * backward),
        Pointwise("rounding", copies * rounding, (copies + blocks) * rounding),
        Pointwise("residual", blocks * (2.0 * stream + element), 3.0 * stream * copies),
    )


def written_out_norm(narrow: float) -> tuple[float, float]:
    """Bytes per element of `narrow` bytes that a root-mean-square norm in fp32 moves, one operation after the other
    (Hugging Face transformers, LlamaRMSNorm; litgpt, RMSNorm). Forward: widened, squared, averaged, scaled, rounded,
    times the weight. Backward: times the weight, the weight's gradient as a product and a sum, widened, the scale's two
    gradients and a sum, the square's two products, both added up, rounded."""
    wide = 4.0
    widen = narrow + wide if narrow < wide else 0.0
    forward = widen + 2.0 * wide + wide + 2.0 * wide + widen + 2.0 * narrow
    weight = 2.0 * narrow + 3.0 * narrow + narrow
    return forward, weight + widen + (2.0 + 3.0 + 1.0) * wide + 4.0 * wide + 3.0 * wide + widen


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
