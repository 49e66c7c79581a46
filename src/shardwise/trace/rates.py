"""How fast those kernels of uncompiled programs go that no plan has: passes by the way they move their bytes, attention
with a mask, products whose rows lie badly.

    t = floor + sqrt((bytes / (stream · share))² + (elements / (per_cycle · multiprocessors · clock))²)

with `stream`, the bytes a second of a dense copy.
Measured on one H200, torch 2.11: `docs/benchmarks/trace-kernels-h200.csv`, 134 million elements of 2 and of 4 bytes
each, written by `benchmarks/trace_kernels.py`. Shares of the bandwidth and elements a cycle are taken to hold on other
GPUs.
"""

from dataclasses import dataclass
from math import hypot, inf

from shardwise.cost.gpu import Curve, attention_seconds
from shardwise.estimate.layers import EVEN, misalignment
from shardwise.spec.gpu import Gpu
from shardwise.trace.events import AttentionCall, Convolution, Pass, Product


@dataclass(frozen=True, slots=True)
class Rate:
    share: float = 1.0
    """of what a dense copy moves in a second"""
    per_cycle: float = inf
    """elements a multiprocessor goes through in a cycle"""


RATES = {
    "stream": Rate(1.0),
    "curved": Rate(0.82),
    "fill": Rate(0.91),
    "broadcast": Rate(1.0, 1.72),
    "strided": Rate(1.0, 1.54),
    "mixed": Rate(1.0, 1.36),
    "turned": Rate(1.0, 0.6),
    "joined": Rate(0.93),
    "joined_pieces": Rate(1.0, 0.96),
    "dropout": Rate(1.0, 2.45),
    "scattered": Rate(1.0, 0.85),
    "sorted_sums": Rate(1.0, 1.77),
    "scattered_sums": Rate(1.0, 0.07),
    "scattered_in_rows": Rate(1.0, 0.36),
    "gathered": Rate(1.0, 0.15),
    "gathered_in_rows": Rate(1.0, 1.2),
    "added_up": Rate(1.0, 0.45),
    "embedding_backward": Rate(0.91, 0.28),
    "sorted": Rate(1.0, 0.06),
    "sorted_rows": Rate(1.0, 0.15),
    "topk": Rate(1.0, 0.12),
    "summed_up": Rate(1.0, 1.1),
    "reduced": Rate(0.95),
    "short_softmax": Rate(1.0, 3.2),
    "softmax": Rate(1.0, 1.3),
    "softmax_backward": Rate(0.49),
    "log_softmax": Rate(0.50),
    "log_softmax_backward": Rate(0.69),
    "norm": Rate(1.0, 4.6),
    "norm_backward": Rate(1.0, 1.0),
    "long_norm_backward": Rate(0.62, 1.0),
    "norm_weights": Rate(1.0, 1.0),
    "group_norm": Rate(0.36),
    "group_norm_backward": Rate(0.38),
    "batch_norm": Rate(0.2, 1.0),
    "batch_norm_backward": Rate(0.36, 1.0),
    "cudnn_batch_norm": Rate(0.4),
    "cudnn_batch_norm_backward": Rate(0.4),
    "pooled": Rate(1.0, 0.95),
    "pooled_backward": Rate(0.23),
    "averaged": Rate(1.0, 0.9),
    "averaged_backward": Rate(1.0, 0.21),
    "repeated": Rate(1.0, 1.0),
    "resized": Rate(1.0, 0.45),
    "resized_backward": Rate(1.0, 0.25),
    "rolled": Rate(1.0, 0.42),
    "list": Rate(1.0, 4.15),
    "fused_update": Rate(1.0, 0.83),
}


def pass_seconds(curve: Curve, gpu: Gpu, work: Pass) -> float:
    """Without the floor of a kernel."""
    rate = RATES[work.kind]
    stream = curve.bandwidth * curve.memory_efficiency("stream")
    cycles = gpu.sms * gpu.boost_clock_hz * rate.per_cycle
    return hypot(work.bytes / (stream * rate.share), work.elements / cycles) + work.wait_s


CONVOLVED = {"bf16": 0.81, "fp16": 0.81, "fp32": 0.9}
"""share of the peak of a dense convolution of many filters; 32 bits are rounded for the matrix units (tf32), as cuDNN
does unless it is told not to"""
FILTERS = 24
"""filters that could have been computed beside those there are"""
TURNED_SHARE, TURNED_WEIGHT_SHARE = 0.5, 0.2
"""of a dense copy's bandwidth, where inputs and outputs, or weights, are brought into another layout"""
CONVOLUTION_FLOOR_S = 7e-6
FEW_CHANNELS = {"forward": (0.034, 0.14), "weight": (0.054, 0.14), "input": (0.013, 0.14)}
"""share of the peak of 16 bits and of the bandwidth where the input has fewer than 8 channels"""
UNMATCHED = {
    ("depthwise", True, True): (28.0, 1.0), ("depthwise", True, False): (14.3, 0.4),
    ("depthwise", False, True): (6.7, 0.21), ("depthwise", False, False): (3.8, 0.14),
    ("grouped", True, True): (48.0, 1.0), ("grouped", True, False): (34.0, 1.0),
    ("grouped", False, True): (54.0, 1.0), ("grouped", False, False): (54.0, 1.0),
}  # fmt: skip
"""(kind, channels last, forward): products a cycle of a multiprocessor, share of the bandwidth"""


def convolution_seconds(curve: Curve, gpu: Gpu, work: Convolution) -> float:
    """Measured on one H200 in 16 and 32 bits: the convolutions of `docs/benchmarks/trace-operators-h200.csv`."""
    stream = curve.bandwidth * curve.memory_efficiency("stream")
    if work.kind == "few_channels":
        of_peak, of_stream = FEW_CHANNELS[work.part]
        return CONVOLUTION_FLOOR_S + hypot(work.flops / (gpu.peak("bf16") * of_peak), work.bytes / (stream * of_stream))
    if work.kind != "dense":
        per_cycle, of_stream = UNMATCHED[work.kind, work.last, work.part == "forward"]
        cycles = gpu.sms * gpu.boost_clock_hz * per_cycle
        return CONVOLUTION_FLOOR_S + work.macs / cycles + work.bytes / (stream * of_stream)
    peak = gpu.peak("tf32" if work.dtype == "fp32" else work.dtype) * CONVOLVED.get(work.dtype, CONVOLVED["bf16"])
    computed = work.flops / (peak * work.filters / (work.filters + FILTERS))
    turned = work.turned_bytes / (stream * TURNED_SHARE) + work.turned_weight_bytes / (stream * TURNED_WEIGHT_SHARE)
    return CONVOLUTION_FLOOR_S + hypot(computed, work.bytes / stream) + turned


GROUPED_TIME = {"tokens": 1.13, "weights": 1.4}
"""experts' products in one kernel over one product of each (8, 64 and 128 experts)"""
ODD_READ, ODD_WRITE, UNEVEN = 4.5, 6.8, 2.4
"""a product of Hopper whose factor, or whose result, has rows that do not start on 16 bytes: its copy engine cannot
load them, and kernels of the generation before run. Rows of an odd number of elements: 8,192 x 50,257 x 768 against the
law of even rows; of an even one: the head of BERT, 30,522 columns"""
WITH_COPY_ENGINE = ("Hopper", "Blackwell")

TILE_WIDTHS = (64, 128, 256)
"""of attention's kernels: a head is padded to the next"""
TILE_KEYS = 128
WHOLE_SQUARE = 6.0
"""how much shorter a sequence fills the GPU where no tile is cut by the diagonal"""
MASKED_TIME = {False: (1.85, 2.7), True: (1.75, 1.85)}
"""a mask or bias is read and added: forward and backward, heads up to 128 wide and wider, over the unmasked square"""
WIDE_BACKWARD = 1.5
"""a backward of heads wider than 128 over the law, which was fitted on narrower ones"""
DROPPED_S = {False: (1.1e-12, 4.3e-12), True: (0.65e-12, 1.5e-12)}
"""seconds a score for its random number, as above, on the GPU measured"""


def misaligned(gpu: Gpu, work: Product) -> float:
    """Time of a product over one whose rows start on 128-byte lines."""
    if gpu.architecture in WITH_COPY_ENGINE and len(work.rows) == 3:
        *factors, result = work.rows
        if any(row % EVEN for row in work.rows):
            return max(ODD_WRITE * (result % 2), ODD_READ * max(row % 2 for row in factors), UNEVEN)
    return float(misalignment(*work.rows))


def attention_kernel_seconds(curve: Curve, work: AttentionCall, kernel: str) -> float:
    wide = work.head_dim > TILE_WIDTHS[-2]
    padded_width = next((width for width in TILE_WIDTHS if work.head_dim <= width), work.head_dim)
    padded_keys = -(-work.keys // TILE_KEYS) * TILE_KEYS
    flops = work.flops * padded_width / work.head_dim * (padded_keys / work.keys) ** 2
    filled = 1.0 if work.causal else WHOLE_SQUARE
    shape = (padded_keys * filled, padded_width, work.groups / filled)
    seconds = float(attention_seconds(curve, flops, *shape, backward=work.backward, kernel=kernel))
    if wide and work.backward:
        seconds *= WIDE_BACKWARD
    if work.masked:
        seconds *= MASKED_TIME[work.backward][wide]
    if work.drops:
        scores = work.groups * work.keys**2 * work.flops / work.square_flops
        seconds += scores * DROPPED_S[work.backward][wide]
    return seconds
