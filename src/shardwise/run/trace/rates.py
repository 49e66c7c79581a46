"""How fast those kernels of uncompiled programs go that no plan has: passes by the way they move their bytes, products
whose rows lie badly.

    t = floor + sqrt((bytes / (stream · share))² + (elements / (per_cycle · multiprocessors · clock))²)

with `stream`, the bytes a second of a dense copy. Measured on one H200, torch 2.11:
`evidence/timed/trace-kernels-h200.csv`, 134 million elements of 2 and of 4 bytes each, `trace-operators-h200.csv` and
`trace-grid-h200.csv`, classes of kernels over shapes and layouts, and `trace-stream-h200.csv`, classes one behind the
other on a stream, out of the cache. Shares of the bandwidth and elements a cycle are
taken to hold on other GPUs.
"""

from dataclasses import dataclass
from math import hypot, inf

from shardwise.cost.gpu import Curve
from shardwise.run.trace.cache import CACHED_TIME
from shardwise.run.trace.events import Pass, Product
from shardwise.spec.gpu import Gpu
from shardwise.step.estimate.odd_rows import EVEN, WITH_COPY_ENGINE, misalignment, odd_rows


@dataclass(frozen=True, slots=True)
class Rate:
    share: float = 1.0
    """of what a dense copy moves in a second"""
    per_cycle: float = inf
    """elements a multiprocessor goes through in a cycle"""


RATES = {
    "stream": Rate(1.0),
    "curved": Rate(0.82),
    "gelu": Rate(0.67),
    "fill": Rate(0.91),
    "broadcast": Rate(1.0, 1.72),
    "strided": Rate(1.0, 1.8),
    "widened": Rate(1.0, 1.54),
    "chosen": Rate(0.53),
    "trimmed": Rate(1.0, 2.0),
    "mixed": Rate(1.0, 1.36),
    "mixed_broadcast": Rate(1.0, 1.1),
    "widened_broadcast": Rate(1.0, 0.88),
    "turned": Rate(1.0, 0.6),
    "joined": Rate(0.93),
    "joined_pieces": Rate(1.0, 1.42),
    "joined_unevenly": Rate(0.9, 2.1),
    "dropout": Rate(1.0, 2.45),
    "scattered": Rate(1.0, 0.85),
    "placed_in_rows": Rate(0.8, 0.5),
    "sorted_sums": Rate(1.0, 1.77),
    "scattered_sums": Rate(1.0, 0.2),
    "scattered_in_rows": Rate(1.0, 0.33),
    "looked_up": Rate(1.0, 1.0),
    "gathered": Rate(1.0, 0.4),
    "gathered_in_rows": Rate(0.83),
    "added_up": Rate(1.0, 0.45),
    "embedding_backward": Rate(0.91, 0.28),
    "sorted": Rate(1.0, 0.06),
    "sorted_rows": Rate(1.0, 0.06),
    "topk": Rate(1.0, 0.12),
    "summed_up": Rate(1.0, 0.23),
    "summed_down": Rate(0.75),
    "reduced": Rate(0.98, 0.55),
    "reduced_narrow": Rate(0.85, 0.57),
    "reduced_columns": Rate(1.0),
    "reduced_planes": Rate(1.0, 2.27),
    "short_softmax": Rate(1.0, 3.2),
    "softmax": Rate(1.0, 1.15),
    "softmax_backward": Rate(0.49),
    "log_softmax": Rate(0.50),
    "log_softmax_backward": Rate(0.69),
    "norm": Rate(1.0, 4.4),
    "norm_backward": Rate(1.0, 1.0),
    "long_norm_backward": Rate(0.62, 1.0),
    "norm_weights": Rate(1.0, 1.0),
    "group_norm": Rate(0.29, 1.0),
    "group_norm_backward": Rate(0.28),
    "batch_norm": Rate(0.225, 1.0),
    "batch_norm_backward": Rate(0.42, 1.0),
    "batch_norm_some": Rate(0.155),
    "batch_norm_few": Rate(0.095),
    "batch_norm_backward_some": Rate(0.33),
    "batch_norm_backward_few": Rate(0.2),
    "cudnn_batch_norm": Rate(0.5),
    "cudnn_batch_norm_backward": Rate(0.5),
    "pooled": Rate(1.0, 0.95),
    "pooled_backward": Rate(0.23),
    "averaged": Rate(1.0, 0.9),
    "averaged_backward": Rate(1.0, 0.21),
    "repeated": Rate(1.0, 1.0),
    "resized": Rate(1.0, 0.45),
    "resized_backward": Rate(1.0, 0.25),
    "rolled": Rate(1.0, 0.87),
    "list": Rate(1.0, 4.15),
    "fused_update": Rate(1.0, 0.83),
}


def pass_seconds(curve: Curve, gpu: Gpu, work: Pass, cached: float = 0.0) -> float:
    """Without the floor of a kernel. `cached`: bytes that come from the cache."""
    rate = RATES[work.kind]
    stream = curve.bandwidth * curve.memory_efficiency("stream")
    cycles = gpu.sms * gpu.boost_clock_hz * rate.per_cycle
    moved = work.bytes - min(cached, work.bytes) * (1.0 - CACHED_TIME)
    return hypot(moved / (stream * rate.share), work.elements / cycles) + work.wait_s


GROUPED_TIME = {"tokens": 1.13, "weights": 1.4}
"""experts' products in one kernel over one product of each (8, 64 and 128 experts)"""
FLOOR_SHARE = 0.45
"""of the planner's floor of a kernel, which was measured in a graph and has the gap behind it too"""
CUT_SUM_S, FEW_TILES = 3.5e-6, 66
"""of a product with so few tiles of 128 x 128 in its result that its long sum is cut, and the pieces added up"""
NARROW, NARROW_ROW_CYCLES = 16, 10.5
"""rows of both factors so narrow that a tile of 384 of them takes its latency, and cycles for each row (2.5 million
rows of 8)"""


def oddly(work: Product) -> bool:
    """Rows that do not start on 16 bytes."""
    return len(work.rows) == 3 and any(row % EVEN for row in work.rows)


def padded_bytes(work: Product) -> int:
    """Of the factors that a compiler copies so that their rows start on 16 bytes; the result it writes with room behind
    each row."""
    if not oddly(work):
        return 0
    width = 4 if work.dtype == "fp32" else 2
    sizes = (work.m * work.k, work.k * work.n)
    return sum(work.batch * size * width for size, row in zip(sizes, work.rows, strict=False) if row % EVEN)


def least_seconds(gpu: Gpu, work: Product) -> float:
    """Of a product whose factors are thin."""
    long, *short = sorted((work.m, work.n, work.k), reverse=True)
    if work.batch > 1 or max(short) > NARROW:
        return 0.0
    return long * NARROW_ROW_CYCLES / (gpu.sms * gpu.boost_clock_hz)


THIN, THIN_TILE, THIN_SHARE, THIN_CUTS = 32, 128, 0.56, (1, 2, 4, 8, 16)
"""rows or columns up to which a product in 32 bits computes tiles of so many and so many, its share of the peak, cuts
(LoRA of rank 16: 17 to 76 us)"""
THIN_CUT_S, THIN_CUT_SHARE = 2.1e-6, 0.8
"""of a cut sum: a kernel that adds up, and its share of the bandwidth"""
THIN_EDGE = 0.042 * 2.5
"""of the time of a tile: what is loaded for narrow tiles is used less often"""


def thin_seconds(curve: Curve, gpu: Gpu, work: Product) -> float:
    """Of a product in 32 bits with few rows or columns; 0 for others."""
    if work.dtype != "fp32" or work.batch > 1 or min(work.m, work.n) > THIN:
        return 0.0
    rate = gpu.peak("fp32") * THIN_SHARE / (1.0 + THIN_EDGE)
    short, long = sorted((work.m, work.n))
    tiles = -(-short // THIN) * -(-long // THIN_TILE)
    pieces = 4.0 * work.m * work.n / (curve.bandwidth * THIN_CUT_SHARE)
    found = []
    for cut in THIN_CUTS:
        computed = 2.0 * -(-tiles * cut // gpu.sms) * gpu.sms * THIN * THIN_TILE * work.k / cut / rate
        found.append(computed + (THIN_CUT_S + cut * pieces if cut > 1 else 0.0))
    return curve.kernel_floor_s + min(found)


def cut_seconds(work: Product) -> float:
    tiles = -(-work.m // 128) * -(-work.n // 128) * work.batch
    return CUT_SUM_S if tiles <= FEW_TILES and work.k >= 16 * max(work.m, work.n) else 0.0


def misaligned(gpu: Gpu, work: Product) -> float:
    """Time of a product over one whose rows start on 128-byte lines."""
    if gpu.architecture in WITH_COPY_ENGINE and len(work.rows) == 3:
        *factors, result = work.rows
        return float(odd_rows(result, *factors))
    return float(misalignment(*work.rows))
