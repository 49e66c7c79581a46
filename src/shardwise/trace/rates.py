"""How fast those kernels of uncompiled programs go that no plan has: passes by the way they move their bytes, products
whose rows lie badly.

    t = floor + sqrt((bytes / (stream · share))² + (elements / (per_cycle · multiprocessors · clock))²)

with `stream`, the bytes a second of a dense copy. Measured on one H200, torch 2.11:
`docs/benchmarks/trace-kernels-h200.csv`, 134 million elements of 2 and of 4 bytes each, `trace-operators-h200.csv` and
`trace-grid-h200.csv`, classes of kernels over shapes and layouts. Shares of the bandwidth and elements a cycle are
taken to hold on other GPUs.
"""

from dataclasses import dataclass
from math import hypot, inf

from shardwise.cost.gpu import Curve
from shardwise.estimate.layers import EVEN, misalignment
from shardwise.spec.gpu import Gpu
from shardwise.trace.cache import CACHED_TIME
from shardwise.trace.events import Pass, Product


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
    "strided": Rate(1.0, 1.8),
    "widened": Rate(1.0, 1.54),
    "chosen": Rate(0.53),
    "trimmed": Rate(1.0, 2.0),
    "mixed": Rate(1.0, 1.36),
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
    "gathered": Rate(1.0, 0.4),
    "gathered_in_rows": Rate(0.83),
    "added_up": Rate(1.0, 0.45),
    "embedding_backward": Rate(0.91, 0.28),
    "sorted": Rate(1.0, 0.06),
    "sorted_rows": Rate(1.0, 0.06),
    "topk": Rate(1.0, 0.12),
    "summed_up": Rate(1.0, 0.23),
    "summed_down": Rate(0.75),
    "reduced": Rate(0.98, 0.61),
    "reduced_narrow": Rate(0.78, 0.65),
    "reduced_columns": Rate(0.91),
    "reduced_columns_narrow": Rate(0.72),
    "reduced_planes": Rate(1.0, 2.27),
    "short_softmax": Rate(1.0, 3.2),
    "softmax": Rate(1.0, 1.15),
    "softmax_backward": Rate(0.49),
    "log_softmax": Rate(0.50),
    "log_softmax_backward": Rate(0.69),
    "norm": Rate(1.0, 4.6),
    "norm_backward": Rate(1.0, 1.0),
    "long_norm_backward": Rate(0.62, 1.0),
    "norm_weights": Rate(1.0, 1.0),
    "group_norm": Rate(0.29),
    "group_norm_backward": Rate(0.28),
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
ODD_READ, ODD_WRITE, UNEVEN = 4.5, 6.8, 2.4
"""a product of Hopper whose factor, or whose result, has rows that do not start on 16 bytes: its copy engine cannot
load them, and kernels of the generation before run. Rows of an odd number of elements: 8,192 x 50,257 x 768 against the
law of even rows; of an even one: the head of BERT, 30,522 columns"""
WITH_COPY_ENGINE = ("Hopper", "Blackwell")


def misaligned(gpu: Gpu, work: Product) -> float:
    """Time of a product over one whose rows start on 128-byte lines."""
    if gpu.architecture in WITH_COPY_ENGINE and len(work.rows) == 3:
        *factors, result = work.rows
        if any(row % EVEN for row in work.rows):
            return max(ODD_WRITE * (result % 2), ODD_READ * max(row % 2 for row in factors), UNEVEN)
    return float(misalignment(*work.rows))
