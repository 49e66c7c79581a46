"""How fast the kernels of a convolution go: the laws of each kind, fitted on the grid of
`evidence/timed/trace-grid-h200.csv` (one H200, torch 2.11, 16 and 32 bits, channels next to each other and apart, each
gradient by itself).

Matrix units compute tiles: filters of a dense convolution, and channels of each group of a grouped one, are filled up
to `TILE`. What has no kernel for them, depthwise convolutions and groups of odd widths, runs on the other cores.
"""

from math import hypot

from shardwise.cost.gpu import Curve
from shardwise.run.trace.events import Convolution
from shardwise.spec.gpu import Gpu

FLOOR_S = 7e-6
TILE = 64
CONVOLVED = {
    2: {"forward": 0.81, "input": 0.78, "weight": 0.66},
    4: {"forward": 0.80, "input": 0.72, "weight": 0.40},
}
"""by bytes of an element: share of the peak of a dense convolution of many filters; 32 bits are rounded for the matrix
units (tf32), as cuDNN does unless it is told not to"""
BESIDE = 24
"""filters that could have been computed beside those there are"""
PLACES_OF_TILE, FILTERS_OF_TILE = 128, 128
TURNED_SHARE, TURNED_WEIGHT_SHARE = {2: 0.5, 4: 0.7}, 0.2
"""of a dense copy's bandwidth, where inputs and outputs, or weights, are brought into another layout"""
FEW_CHANNELS = {"forward": (0.034, 0.14), "weight": (0.054, 0.11), "input": (0.013, 0.14)}
"""share of the peak of 16 bits, and of the bandwidth if elements had 2 bytes, where the input has fewer than 8
channels"""
FEW_APART = {"forward": 1.2, "weight": 1.5, "input": 1.2}
"""of their time, where channels lie apart (`evidence/timed/trace-stream-h200.csv`)"""
GROUPED = {
    2: {"forward": 660.0, "input": 590.0, "weight": 620.0},
    4: {"forward": 420.0, "input": 400.0, "weight": 105.0},
}
"""products a cycle of a multiprocessor, groups filled up to a tile"""
NARROWEST = 4
"""channels of a group for which there is a kernel of matrix units, if they are a power of two"""
ODD_GROUP_S = 1.7e-5
"""of each group whose channels are no power of two: kernels of their own"""
THIN = {True: {"forward": 0.9, "input": 1.9, "weight": 2.0}, False: {"forward": 3.7, "input": 4.2, "weight": 5.0}}
"""by layout: products a cycle of groups of 2 or 3 channels"""
LONG_FILTER, LONG_FILTER_RATE = 64, 6.0
"""places from which the forward of odd groups in 16 bits has no kernel of matrix units, and its products a cycle"""
LONG_TIME = {2: {"forward": 1.7, "input": 1.7, "weight": 1.7}, 4: {"forward": 2.0, "input": 2.0, "weight": 3.7}}
"""by bytes of an element: time of grouped filters so long over the law of short ones (128 places)"""
DEPTHWISE_LAST = {
    2: {"forward": (30.0, 1.0), "input": (12.5, 1.0), "weight": (30.0, 0.5)},
    4: {"forward": (11.0, 1.0), "input": (12.0, 1.0), "weight": (16.0, 0.5)},
}
"""products a cycle and share of the bandwidth, channels next to each other"""
DEPTHWISE_APART = {"forward": (7.0, 0.64), "input": (5.5, 0.55), "weight": (2.5, float("inf"))}
"""the same where they lie apart: products, and places of a channel, a cycle; elements of 2 and 4 bytes take the same"""


def convolution_seconds(curve: Curve, gpu: Gpu, work: Convolution) -> float:
    stream = curve.bandwidth * curve.memory_efficiency("stream")
    width = 4 if work.dtype == "fp32" else 2
    turned = work.turned_bytes / (stream * TURNED_SHARE[width]) + work.turned_weight_bytes / (
        stream * TURNED_WEIGHT_SHARE
    )
    if work.kind == "few_channels":
        of_peak, of_stream = FEW_CHANNELS[work.part]
        moved = work.bytes * 2 / width
        seconds = hypot(work.flops / (gpu.peak("bf16") * of_peak), moved / (stream * of_stream))
        return FLOOR_S + seconds * (1.0 if work.last else FEW_APART[work.part])
    cycles = gpu.sms * gpu.boost_clock_hz
    if work.kind == "depthwise":
        return FLOOR_S + _depthwise(work, width, stream, cycles)
    if work.kind == "grouped":
        return FLOOR_S + _grouped(work, width, stream, cycles) + turned
    peak = gpu.peak("tf32" if work.dtype == "fp32" else work.dtype) * CONVOLVED[width][work.part]
    return FLOOR_S + hypot(_dense_flops(gpu, work) / peak, work.bytes / stream) + turned


def _dense_flops(gpu: Gpu, work: Convolution) -> float:
    """As the tiles compute them, those beside the last one and in the last wave of tiles included."""
    columns = work.channels if work.part == "input" else work.filters
    filled = -(-columns // TILE) * TILE
    flops = work.flops * filled / columns * (filled + BESIDE) / filled
    if work.part == "weight":
        return flops  # long sums are cut over the GPU
    tiles = -(-(work.reached if work.part == "input" else work.places) // PLACES_OF_TILE) * -(
        -columns // FILTERS_OF_TILE
    )
    return flops * max(gpu.sms / tiles, 1.0)


def _applied(work: Convolution) -> int:
    """Filters times places; the gradient of the input has the input's places."""
    return (work.reached if work.part == "input" else work.places) * work.filters


def _grouped(work: Convolution, width: int, stream: float, cycles: float) -> float:
    channels = work.channels // work.groups
    odd = channels & (channels - 1) != 0
    if channels < NARROWEST:
        return work.macs / (THIN[work.last][work.part] * cycles)
    if odd and work.taps >= LONG_FILTER and work.part == "forward" and width == 2:
        return work.macs / (LONG_FILTER_RATE * cycles)
    filled = -(-channels // TILE) * TILE
    seconds = _applied(work) * work.taps * filled / (GROUPED[width][work.part] * cycles)
    seconds *= LONG_TIME[width][work.part] if work.taps >= LONG_FILTER else 1.0
    launched = work.groups * ODD_GROUP_S if odd and work.last else 0.0
    return hypot(seconds, work.bytes / stream) + launched


def _depthwise(work: Convolution, width: int, stream: float, cycles: float) -> float:
    applied = _applied(work)
    if work.last:
        per_cycle, share = DEPTHWISE_LAST[width][work.part]
        return hypot(applied * work.taps / (per_cycle * cycles), work.bytes / (stream * share))
    products, places = DEPTHWISE_APART[work.part]
    return applied * work.taps / (products * cycles) + applied / (places * cycles)
