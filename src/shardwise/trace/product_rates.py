"""How fast products of 16-bit matrices go on Hopper: multiprocessors compute tiles of the result, a whole one each, in
as many waves as it takes; long sums of few tiles are cut, and the pieces added up.

    t = floor + ((tiles' waves · one tile's time)^p + (bytes / bandwidth)^p)^(1/p)

with the tile shape and the cut that take least. Fitted on the products of 75 training programs as they ran
(`evidence/timed/trace-products-h200.csv`, 1,006 shapes on one H200, torch 2.11): 3.2 % mean error, weighted by time;
the planner's law, which has no waves, has 8.8 % on them.
"""

from math import ceil, inf

from shardwise.cost.gpu import Curve
from shardwise.spec.gpu import Gpu
from shardwise.trace.events import Product

WIDTHS = frozenset({"bf16", "fp16"})
TILES = (
    (256, 128), (128, 256), (192, 192), (320, 128), (128, 320), (128, 128), (192, 128), (128, 192),
    (64, 256), (256, 64), (64, 128), (128, 64), (64, 64),
)  # fmt: skip
"""rows and columns"""
CUTS = (1, 2, 4)
"""pieces of a sum"""
SHARE, OF_CURVE = 0.886, 0.7999
"""of the peak, for large tiles; what the planner's curve of the GPU measured has in its place"""
BEGIN = 127.0
"""products of a row and a column that could have been computed while a tile begins and ends"""
EDGE = 0.042
"""of the time of a tile of 64 x 64 for each of its two edges: what is loaded is used less often"""
MEMORY_SHARE = 0.822
CUT_S, CUT_BANDWIDTH = 2.1e-6, 0.8
"""of a cut sum: a kernel that adds up, and its share of the bandwidth"""
TOGETHER = 4.25
"""p"""
CLOCK = 0.11
"""by which the power limit lowers the clock where matrix units work all the time: 0.039 in the one step that was looked
at, the rest in steps one behind the other (six decoders, half of whose time are products: 4 to 5 % of it)"""
ODD_TIME = 1.2
"""of products whose rows do not start on 16 bytes, over what the planner's law makes of them"""
THIN, THIN_TILE, THIN_SHARE, THIN_CUTS = 32, 128, 0.56, (1, 2, 4, 8, 16)
"""rows or columns up to which a product in 32 bits computes tiles of so many and so many, its share of the peak, cuts
(LoRA of rank 16: 17 to 76 us)"""


def tiled_seconds(curve: Curve, gpu: Gpu, work: Product, duty: float, slowed: float = 1.0) -> float:
    """`duty`: the share of the step in which matrix units work; `slowed`: time of each step of the sum over one whose
    rows start on 16 bytes."""
    peak = gpu.peak("bf16") * SHARE * curve.gemm_law("bf16").e_max / OF_CURVE * (1.0 - CLOCK * duty)
    sums = work.k * slowed * (ODD_TIME if slowed > 1.0 else 1.0)
    computed = min(_computed(gpu, work, tile, cut, sums, peak, curve.bandwidth) for tile in TILES for cut in CUTS)
    edges = (work.m + work.n) * work.k + work.m * work.n
    moved = 2.0 * work.batch * edges / (curve.bandwidth * MEMORY_SHARE)
    largest = max(computed, moved)
    both = (computed / largest) ** TOGETHER + (moved / largest) ** TOGETHER if largest else 0.0
    return float(curve.kernel_floor_s + largest * both ** (1.0 / TOGETHER))


def thin_seconds(curve: Curve, gpu: Gpu, work: Product) -> float:
    """Of a product in 32 bits with few rows or columns; 0 for others."""
    if work.dtype != "fp32" or work.batch > 1 or min(work.m, work.n) > THIN:
        return 0.0
    peak, tile = gpu.peak("fp32") * THIN_SHARE, (THIN, THIN_TILE) if work.m < work.n else (THIN_TILE, THIN)
    computed = min(_computed(gpu, work, tile, cut, work.k, peak, curve.bandwidth, 0.0) for cut in THIN_CUTS)
    return float(curve.kernel_floor_s + computed)


def _computed(
    gpu: Gpu, work: Product, tile: tuple[int, int], cut: int, sums: float, peak: float, bandwidth: float,
    begin: float = BEGIN,
) -> float:  # fmt: skip
    rows, columns = tile
    tiles = work.batch * ceil(work.m / rows) * ceil(work.n / columns) * cut
    waves = ceil(tiles / gpu.sms)
    slower = 1.0 + EDGE * (64 / rows + 64 / columns)
    seconds = waves * gpu.sms * rows * columns * (sums / cut + begin) * 2.0 * slower / peak
    if cut > 1:
        seconds += CUT_S + 4.0 * cut * work.batch * work.m * work.n / (bandwidth * CUT_BANDWIDTH)
    return seconds if seconds > 0 else inf
