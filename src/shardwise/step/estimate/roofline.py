"""Where compute stops hiding memory and network: critical intensity, critical batch, tensor-parallel bound.

A group of GPUs that spans level i of the tree reduces its gradients through every level below it. Inside level i each
of the S_(i-1) GPUs of one subtree sends its own share, so the bandwidth the array sees there is
max(inner, S_(i-1)) x (bytes/s of one GPU): an inner axis (tensor, expert, pipeline) that already splits the weights
`inner` ways helps a level only once it is wider than that level's subtrees.
"""

from math import prod

from msgspec import Struct

from shardwise.spec.cluster import Cluster, Level
from shardwise.spec.gpu import Gpu

SHARP_GAIN_IN_PRACTICE = 1.3
"""measured gain of in-network reduction over a ring on large messages; on paper it is 2"""
BACKWARD_FLOPS_PER_PARAMETER = 4.0
"""per token: gradients of the inputs and of the weights, one multiply-add each"""


class LevelRoofline(Struct, frozen=True, kw_only=True):
    """What a data-parallel group that spans this level needs to stay compute-bound."""

    level: str
    gpus: int
    link_bytes_per_s: float
    """out of one GPU, each way, after oversubscription"""
    total_bytes_per_s: float
    level_bytes_per_s: float
    """what an array sharded `inner` ways sees at this level alone"""
    path_bytes_per_s: float
    """the slowest level on the way up: what the collective gets"""
    crossed: bool
    """False when the inner axis covers the whole level, so that no data-parallel traffic crosses it"""
    dp_sharp_tokens: float | None
    """tokens per GPU with ideal in-network reduction; None when a level on the way cannot reduce"""
    dp_sharp_practice_tokens: float | None
    dp_ring_tokens: float
    fsdp_tokens: float


def critical_intensity(gpu: Gpu, dtype: str = "bf16") -> float:
    """FLOP per byte of device memory above which a matrix product is compute-bound."""
    return gpu.peak(dtype) / gpu.memory_bandwidth


def vector_flops(gpu: Gpu, clock_hz: float) -> float:
    """fp32 operations per second of the vector units, one per core and cycle (a fused multiply-add would count two)."""
    return gpu.fp32_cores * clock_hz


def shared_memory_bytes(gpu: Gpu) -> float:
    return gpu.sms * gpu.shared_bytes_per_sm


def domain_bandwidth(cluster: Cluster) -> float:
    """bytes/s that all GPUs of one fast domain can send at once, each way."""
    return cluster.node_size * cluster.levels[0].bandwidth


def bisection_bandwidth(cluster: Cluster) -> float | None:
    """bytes/s across an even cut of one fast domain, both ways added: each half sends what its GPUs can. None without a
    switch: links between neighbours carry less."""
    if cluster.levels[0].mesh:
        return None
    return 2 * (cluster.node_size // 2) * cluster.levels[0].bandwidth


def level_sizes(cluster: Cluster) -> tuple[int, ...]:
    """GPUs under one switch group of each level, at most the whole cluster."""
    degrees = [level.degree for level in cluster.levels]
    return tuple(min(cluster.gpus, prod(degrees[: i + 1])) for i in range(len(degrees)))


def level_bandwidths(cluster: Cluster, inner: int = 1) -> tuple[float, ...]:
    """bytes/s that an all-gather or reduction of an array sharded `inner` ways sees at each level alone."""
    below = (1, *level_sizes(cluster)[:-1])
    return tuple(max(inner, size) * level.usable_bandwidth for size, level in zip(below, cluster.levels, strict=True))


def critical_tokens(peak: float, bandwidth: float, *, in_network: bool, experts_per_active: float = 1.0,
                    bytes_per_parameter: float = 2.0) -> float:  # fmt: skip
    """Tokens per GPU above which the gradient reduction hides under the backward pass.

    Backward: 4 FLOP per parameter and token. In-network reduction sends each byte once; a ring (or reduce-scatter plus
    all-gather, which is also FSDP's traffic) sends it twice. Experts multiply the bytes by E and the FLOP by k.
    """
    sends = 1.0 if in_network else 2.0
    return sends * bytes_per_parameter * peak * experts_per_active / (BACKWARD_FLOPS_PER_PARAMETER * bandwidth)


def rooflines(
    cluster: Cluster, *, dtype: str = "bf16", inner: int = 1, stages: int = 1, experts: int = 1, active: int = 1
) -> list[LevelRoofline]:
    """One row per level that the cluster has; the group spans everything up to and with that level. `inner`: ways that
    neighbouring GPUs split the weights (tensor, expert); `stages`: of a pipeline over blocks of GPUs further out, each
    of which reduces its own layers only, while tokens are counted per GPU of all of them."""
    _check_counts(inner, stages, experts, active, cluster.gpus)
    peak, ratio = cluster.gpu.peak(dtype), experts / active / stages
    sizes, bandwidths = level_sizes(cluster), level_bandwidths(cluster, inner)
    rows: list[LevelRoofline] = []
    path, reduces = float("inf"), True
    for level, size, bandwidth in zip(cluster.levels, sizes, bandwidths, strict=True):
        if rows and size == rows[-1].gpus:
            continue  # the cluster is too small to reach this level
        crossed = inner < size
        if crossed:
            path, reduces = min(path, bandwidth), reduces and level.reduces
        seen = path if crossed else bandwidth
        rows.append(_row(level, size, bandwidth, seen, crossed, reduces and level.reduces, peak, ratio))
    return rows


def _row(level: Level, size: int, bandwidth: float, path: float, crossed: bool, reduces: bool, peak: float,
         ratio: float) -> LevelRoofline:  # fmt: skip
    ring = critical_tokens(peak, path, in_network=False, experts_per_active=ratio)
    sharp = critical_tokens(peak, path, in_network=True, experts_per_active=ratio)
    return LevelRoofline(
        level=level.name, gpus=size, link_bytes_per_s=level.usable_bandwidth,
        total_bytes_per_s=size * level.usable_bandwidth, level_bytes_per_s=bandwidth, path_bytes_per_s=path,
        crossed=crossed, dp_sharp_tokens=sharp if reduces else None,
        dp_sharp_practice_tokens=ring / SHARP_GAIN_IN_PRACTICE if reduces else None,
        dp_ring_tokens=ring, fsdp_tokens=ring,
    )  # fmt: skip


def tensor_parallel_ways(ffn: int, bandwidth: float, peak: float, *, matrices: int = 2) -> float:
    """Tensor-parallel degree above which the activations' all-gather and reduce-scatter outlast the products.

    A feed-forward of two F-wide matrices computes 4BDF/(Y C) and moves 2 x 2BD (Y-1)/(Y W) bytes, so Y - 1 < F W / C;
    for many ways that is Y < F W / C. A gated feed-forward has three matrices and half as much again to hide behind.
    """
    return 1.0 + matrices / 2 * ffn * bandwidth / peak


def _check_counts(inner: int, stages: int, experts: int, active: int, gpus: int) -> None:
    if not 1 <= inner <= gpus:
        raise ValueError(f"inner: {inner} ways on {gpus} GPUs; write a number from 1 to {gpus}")
    if not 1 <= stages <= gpus // inner:
        raise ValueError(f"pp: {stages} stages of {inner} GPUs on {gpus}; write a number from 1 to {gpus // inner}")
    if not 1 <= active <= experts:
        raise ValueError(f"experts: {active} active of {experts}; write --active from 1 to {experts}")
