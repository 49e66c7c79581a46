"""`roofline`: how much work per byte hides a GPU's memory, and how many tokens per GPU hide a cluster's network."""

from collections.abc import Iterator, Sequence

from shardwise.answers.answer import Answer, Cell, FactList, Part, Table
from shardwise.cost.network import network_of
from shardwise.spec.cluster import Cluster
from shardwise.step.estimate.roofline import (
    LevelRoofline,
    bisection_bandwidth,
    critical_intensity,
    domain_bandwidth,
    rooflines,
    shared_memory_bytes,
    tensor_parallel_ways,
    vector_flops,
)

HEADS = ("level", "GPUs", "egress GB/s", "TB/s seen", "DP in network", "in practice", "DP ring", "FSDP")
LONG_BYTES = 1e9
"""size of the collective whose rate the tensor-parallel bound takes as reachable"""


class RooflineAnswer(Answer, frozen=True, kw_only=True):
    cluster: str
    gpu: str
    gpus: int
    dtype: str
    peak_flops_per_s: float
    critical_flop_per_byte: float
    vector_flops_per_s: float
    vector_boost_flops_per_s: float
    fp32_cores: int
    shared_memory_bytes: float
    domain_gpus: int
    domain_bytes_per_s: float
    bisection_bytes_per_s: float | None
    """None: GPUs wired to each other, without a switch"""
    levels: Sequence[LevelRoofline]
    node_egress_bytes_per_s: float | None
    ffn: int | None
    tensor_parallel_bound_ways: float | None
    """by the data sheet"""
    tensor_parallel_reached_ways: float | None
    """at the rate that long collectives of the fast domain reach"""
    reached_bytes_per_s: float | None

    def parts(self) -> Iterator[Part]:
        yield FactList(f"{self.cluster}: {self.gpus:,} x {self.gpu}, {self.dtype}", list(self._facts()))
        title = "tokens per GPU that hide the gradient traffic of a group spanning ..."
        yield Table(title, HEADS, [_cells(row) for row in self.levels], bars=HEADS[4:])

    def _facts(self) -> Iterator[tuple[str, Cell]]:
        yield "memory", f"{self.critical_flop_per_byte:.0f} FLOP/byte make a GEMM compute-bound"
        boost = f"{self.vector_boost_flops_per_s / 1e12:.1f} boost ({self.fp32_cores:,} cores)"
        yield "vector fp32", f"{self.vector_flops_per_s / 1e12:.1f} T/s base, {boost}"
        yield "shared memory", f"{self.shared_memory_bytes / 2**20:.0f} MiB"
        cut = self.bisection_bytes_per_s
        bisection = "" if cut is None else f", bisection {cut / 1e12:.3g} TB/s"
        yield "fast domain", f"{self.domain_gpus} GPUs, {self.domain_bytes_per_s / 1e12:.3g} TB/s each way{bisection}"
        if self.node_egress_bytes_per_s is not None:
            egress = self.node_egress_bytes_per_s / 1e9
            each = f"{self.domain_gpus} x {egress / self.domain_gpus:.3g} GB/s"
            yield "node egress", f"{each} = {egress:,.4g} GB/s into the network, each way"
        if (last := self.levels[-1]).crossed:
            tokens = (last.dp_sharp_tokens or last.dp_ring_tokens) * self.gpus
            yield "global batch", f"{tokens:,.0f} tokens at least, FSDP {last.fsdp_tokens * self.gpus:,.0f}"
        if self.tensor_parallel_bound_ways and self.tensor_parallel_reached_ways and self.reached_bytes_per_s:
            bound, reached = self.tensor_parallel_bound_ways, self.tensor_parallel_reached_ways
            rate = f"at the {self.reached_bytes_per_s / 1e9:.0f} GB/s that long collectives reach"
            yield "tensor parallel", (f"up to {int(bound)} ways in the fast domain for F = {self.ffn:,} (bound "
                                      f"{bound:.2f}); {rate} {int(reached)} ({reached:.2f})")  # fmt: skip


ANSWERS = (RooflineAnswer,)


def roofline_answer(
    cluster: Cluster, dtype: str, *, inner: int = 1, stages: int = 1, experts: int = 1, active: int = 1,
    ffn: int | None = None, matrices: int = 2, notes: Sequence[str] = (),
) -> RooflineAnswer:  # fmt: skip
    """`inner`: parts into which neighbouring GPUs split the weights; `ffn`: a width, for its tensor-parallel bound."""
    gpu, fast = cluster.gpu, cluster.levels[0]
    rate = float(network_of(cluster).bus_bandwidth("all_gather", LONG_BYTES, cluster.node_size)) if ffn else None
    bound, reached = (
        None if ffn is None or each is None else tensor_parallel_ways(ffn, each, gpu.peak(dtype), matrices=matrices)
        for each in (fast.usable_bandwidth, rate)
    )
    return RooflineAnswer(
        cluster=cluster.name, gpu=gpu.name, gpus=cluster.gpus, dtype=dtype, peak_flops_per_s=gpu.peak(dtype),
        critical_flop_per_byte=critical_intensity(gpu, dtype),
        vector_flops_per_s=vector_flops(gpu, gpu.base_clock_hz),
        vector_boost_flops_per_s=vector_flops(gpu, gpu.boost_clock_hz), fp32_cores=gpu.fp32_cores,
        shared_memory_bytes=shared_memory_bytes(gpu), domain_gpus=cluster.node_size,
        domain_bytes_per_s=domain_bandwidth(cluster), bisection_bytes_per_s=bisection_bandwidth(cluster),
        levels=rooflines(cluster, dtype=dtype, inner=inner, stages=stages, experts=experts, active=active),
        node_egress_bytes_per_s=cluster.node_size * cluster.levels[1].usable_bandwidth
        if len(cluster.levels) > 1 else None,
        ffn=ffn, tensor_parallel_bound_ways=bound, tensor_parallel_reached_ways=reached, reached_bytes_per_s=rate,
        notes=notes,
    )  # fmt: skip


def _cells(row: LevelRoofline) -> list[Cell]:
    seen: list[Cell] = [row.level, row.gpus, row.link_bytes_per_s / 1e9, row.level_bytes_per_s / 1e12]
    if not row.crossed:
        return [*seen, None, None, None, None]
    tokens = (row.dp_sharp_tokens, row.dp_sharp_practice_tokens, row.dp_ring_tokens, row.fsdp_tokens)
    return [*seen, *(None if count is None else round(count) for count in tokens)]
