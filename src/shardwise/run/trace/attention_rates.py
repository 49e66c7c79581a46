"""How fast fused attention goes: cuDNN's kernel in 16 bits, torch's own in 32.

Fitted on `evidence/timed/trace-grid-h200.csv` (one H200, torch 2.11): 49 to 4,096 keys, heads 32 to 256 wide, with and
without a mask. A causal square keeps the planner's law, which was fitted on long sequences.
"""

from shardwise.cost.gpu import Curve, attention_seconds
from shardwise.run.trace.events import AttentionCall
from shardwise.spec.gpu import Gpu

TILE_WIDTHS = (64, 128, 256)
"""a head is padded to the next"""
TILE = 128
"""queries and keys that a block takes at a time"""
WHOLE = {
    (64, False): (9.3e-9, 1.2e-6), (64, True): (2.4e-8, 8e-6),
    (128, False): (1.24e-8, 1.8e-6), (128, True): (3.4e-8, 1.6e-5),
    (256, False): (2.23e-8, 4.7e-6), (256, True): (1.09e-7, 3.2e-5),
}  # fmt: skip
"""(width, backward): seconds a block needs for each key, and to begin and end, on the GPU measured"""
MEASURED_SMS = 132
MEASURED_PEAK = 989.4e12 / MEASURED_SMS
"""of one of its multiprocessors, FLOP/s in 16 bits"""
MASKED_TIME = {False: (1.8, 2.0, 2.7), True: (1.5, 1.65, 1.85)}
"""a mask or bias is read and added: forward and backward, by the width of heads, over the unmasked square"""
EVEN_KEYS, UNEVEN_MASK_TIME = 4, 1.7
"""keys of a mask whose rows can be read as they lie; others are copied first, in the forward"""
WIDE_BACKWARD = 1.5
"""a causal backward of heads wider than 128 over the law, which was fitted on narrower ones"""
DROPPED_S = {False: (1.1e-12, 1.1e-12, 4.3e-12), True: (0.65e-12, 0.65e-12, 1.5e-12)}
"""seconds a score for its random number, as above, on the GPU measured"""
IN_32_BITS = {False: (32e12, 42e12, 42e12), True: (34e12, 36e12, 36e12)}
"""FLOP/s by the width of heads, on the GPU measured, whose peak in 32 bits is the next"""
MEASURED_PEAK_32 = 66.9e12
MASKED_TIME_32 = {False: 1.2, True: 1.05}


TRAINED_BIAS = {(32, False): 1.22e-8, (32, True): 3.6e-8, (64, False): 1.31e-8, (64, True): 4.0e-8}
TRAINED_BIAS_S, SMALL_TILE = 8e-6, 64
"""with a bias that is trained (`evidence/timed/trace-stream-h200.csv`): seconds of the whole GPU for so many queries
and keys of one head, by the width of heads and backward, and to begin"""


WIDE = {False: 1.26e14, True: 2.8e13}
"""FLOP/s of torch's own kernel for heads wider than 256, forward and backward (512 wide, causal, GPU measured)"""


def _biased(gpu: Gpu, work: AttentionCall) -> float:
    tiles = work.groups * -(-(work.queries or work.keys) // SMALL_TILE) * -(-work.keys // SMALL_TILE)
    each = TRAINED_BIAS[32 if work.head_dim <= 32 else 64, work.backward] * max(work.head_dim / 64, 1.0)
    return TRAINED_BIAS_S + tiles * each * MEASURED_PEAK * MEASURED_SMS / gpu.peak("bf16")


def attention_kernel_seconds(curve: Curve, gpu: Gpu, work: AttentionCall, kernel: str) -> float:
    place = next((i for i, width in enumerate(TILE_WIDTHS) if work.head_dim <= width), len(TILE_WIDTHS) - 1)
    width = max(TILE_WIDTHS[place], work.head_dim)
    queries, keys = (-(-length // TILE) * TILE for length in (work.queries or work.keys, work.keys))
    if work.dtype == "fp32":
        asked = work.queries or work.keys
        queries, keys = (-(-length // SMALL_TILE) * SMALL_TILE for length in (asked, work.keys))
        square = work.square_flops * width / work.head_dim * queries * keys / (asked * work.keys)
        share = 0.5 * (1.0 + TILE / keys) if work.causal else 1.0
        rate = IN_32_BITS[work.backward][place] * gpu.peak("fp32") / MEASURED_PEAK_32
        masked = MASKED_TIME_32[work.backward] if work.masked else 1.0
        return curve.kernel_floor_s + square * min(share, 1.0) / rate * masked
    if work.trains_bias and work.head_dim > TILE_WIDTHS[-1]:
        slower = MEASURED_PEAK * MEASURED_SMS / gpu.peak("bf16")
        return curve.kernel_floor_s + work.flops / WIDE[work.backward] * slower
    if work.trains_bias:
        return _biased(gpu, work)
    if work.causal:
        flops = work.flops * width / work.head_dim * (keys / work.keys) ** 2
        shape = (keys, width, work.groups)
        seconds = float(attention_seconds(curve, flops, *shape, backward=work.backward, kernel=kernel))
        seconds *= WIDE_BACKWARD if work.backward and place == 2 else 1.0
    else:
        each, begin = WHOLE[TILE_WIDTHS[place], work.backward]
        waves = -(-work.groups * (queries // TILE) // gpu.sms)
        slower = MEASURED_PEAK / (gpu.peak("bf16") / gpu.sms)
        seconds = curve.kernel_floor_s + waves * (keys * each + begin) * slower
    if work.masked:
        seconds *= MASKED_TIME[work.backward][place]
        if work.keys % EVEN_KEYS and not work.backward:
            seconds *= UNEVEN_MASK_TIME
    if work.drops:
        scores = work.groups * (work.queries or work.keys) * work.keys * work.flops / work.square_flops
        seconds += scores * DROPPED_S[work.backward][place]
    return seconds
