"""`shardwise roofline`: how much work it takes to hide memory and network."""

from typing import Annotated, Any, NamedTuple

import msgspec
from cyclopts import Parameter

from shardwise.calibrate.overlay import as_measured
from shardwise.cli import _notes
from shardwise.cli._options import Explain, Json, ProfileFile, profile_or_none, within
from shardwise.cli._output import Cell, print_facts, print_gap, print_json, print_notes, print_table
from shardwise.cli._target import known_dtype, missing_dtype, target_of
from shardwise.cost.network import network_of
from shardwise.estimate.roofline import (
    LevelRoofline,
    bisection_bandwidth,
    critical_intensity,
    critical_tokens,
    domain_bandwidth,
    rooflines,
    shared_memory_bytes,
    tensor_parallel_ways,
    vector_flops,
)
from shardwise.spec.cluster import Cluster
from shardwise.units import count_of


def roofline(
    target: Annotated[
        str, Parameter(name="--on", help="A GPU (h100) or a cluster (dgx-h100:1024, 8xh100, a YAML file).")
    ],
    *,
    dtype: Annotated[str, Parameter(help="dtype of the matrix products: tf32, fp16, bf16, fp8, fp4.")] = "bf16",
    tp: Annotated[int, Parameter(help="Tensor parallel, on neighbouring GPUs."), within(1)] = 1,
    ep: Annotated[int, Parameter(help="Expert parallel, on neighbouring GPUs."), within(1)] = 1,
    pp: Annotated[int, Parameter(help="Pipeline stages, over blocks of GPUs further out.")] = 1,
    inner: Annotated[
        int, Parameter(help="Ways further inner axes split the weights, on neighbouring GPUs."), within(1)
    ] = 1,
    experts: Annotated[int, Parameter(help="Experts of a mixture-of-experts layer.")] = 1,
    active: Annotated[int, Parameter(help="Experts each token goes through.")] = 1,
    ffn: Annotated[str | None, Parameter(help="Feed-forward width F: prints the tensor-parallel bound.")] = None,
    glu: Annotated[bool, Parameter(help="The feed-forward is gated: three matrices instead of two.")] = False,
    profile: ProfileFile = None,
    explain: Explain = False,
    json: Json = False,
) -> None:
    """Critical intensity (FLOP/byte) and critical batch (tokens per GPU) of a GPU or cluster."""
    cluster, measured = target_of(target), profile_or_none(profile)
    if measured is not None:
        cluster = as_measured(cluster, measured)
    near = tp * ep * inner
    rows = rooflines(cluster, dtype=known_dtype(dtype), inner=near, stages=pp, experts=experts, active=active)
    width = None if ffn is None else count_of(ffn, "ffn")
    bounds = None if width is None else _bounds(cluster, width, dtype, 3 if glu else 2)
    notes = [*missing_dtype(cluster.gpu, dtype), *_lines(cluster, rows, bounds, pp)]
    if explain:
        notes += _errata(cluster, rows, bounds is not None)
    if measured is not None:
        notes.append(f"rates of the GPU are those reached, not the datasheet's: {measured.words}")
    if json:
        print_json(_data(cluster, dtype, rows, bounds, notes))
        return
    print_facts(
        f"{cluster.name}: {cluster.gpus:,} x {cluster.gpu.name}, {dtype}", _facts(cluster, dtype, rows, width, bounds)
    )
    print_gap()
    print_table("tokens per GPU that hide the gradient traffic of a group spanning ...", HEADS, map(_cells, rows),
                bars=HEADS[4:])  # fmt: skip
    print_notes(notes)


HEADS = ["level", "GPUs", "egress GB/s", "TB/s seen", "DP in network", "in practice", "DP ring", "FSDP"]
LONG_BYTES = 1e9
"""of a collective whose rate is told as what can be reached"""


class TensorBounds(NamedTuple):
    data_sheet: float
    """ways"""
    reached: float
    """ways, at the rate that long collectives of the fast domain reach"""
    reached_bytes_per_s: float


def _bounds(cluster: Cluster, width: int, dtype: str, matrices: int) -> TensorBounds:
    peak, level = cluster.gpu.peak(dtype), cluster.levels[0]
    rate = float(network_of(cluster).bus_bandwidth("all_gather", LONG_BYTES, cluster.node_size))
    return TensorBounds(
        tensor_parallel_ways(width, level.usable_bandwidth, peak, matrices=matrices),
        tensor_parallel_ways(width, rate, peak, matrices=matrices), rate,
    )  # fmt: skip


def _cells(row: LevelRoofline) -> list[Cell]:
    seen: list[Cell] = [row.level, row.gpus, row.link_bytes_per_s / 1e9, row.level_bytes_per_s / 1e12]
    if not row.crossed:
        return [*seen, None, None, None, None]
    tokens = (row.dp_sharp_tokens, row.dp_sharp_practice_tokens, row.dp_ring_tokens, row.fsdp_tokens)
    return [*seen, *(None if t is None else round(t) for t in tokens)]


def _facts(
    cluster: Cluster, dtype: str, rows: list[LevelRoofline], ffn: int | None, bounds: TensorBounds | None
) -> list[tuple[str, Cell]]:
    gpu = cluster.gpu
    facts: list[tuple[str, Cell]] = [
        ("memory", f"{critical_intensity(gpu, dtype):.0f} FLOP/byte make a product compute-bound"),
        ("vector fp32", f"{vector_flops(gpu, gpu.base_clock_hz) / 1e12:.1f} T/s base, "
                        f"{vector_flops(gpu, gpu.boost_clock_hz) / 1e12:.1f} boost ({gpu.fp32_cores:,} cores)"),
        ("shared memory", f"{shared_memory_bytes(gpu) / 2**20:.0f} MiB"),
        ("fast domain", f"{cluster.node_size} GPUs, {domain_bandwidth(cluster) / 1e12:.3g} TB/s each way, "
                        f"bisection {bisection_bandwidth(cluster) / 1e12:.3g} TB/s"),
    ]  # fmt: skip
    if len(cluster.levels) > 1:
        egress, gpus = cluster.levels[1].usable_bandwidth / 1e9, cluster.node_size
        into = f"{gpus} x {egress:.3g} GB/s = {gpus * egress:,.4g} GB/s into the network, each way"
        facts.append(("node egress", into))
    if rows[-1].crossed:
        best = rows[-1].dp_sharp_tokens or rows[-1].dp_ring_tokens
        facts.append(
            (
                "global batch",
                f"{best * cluster.gpus:,.0f} tokens at least, FSDP {rows[-1].fsdp_tokens * cluster.gpus:,.0f}",
            )
        )
    if bounds is not None:
        paper = (
            f"up to {int(bounds.data_sheet)} ways in the fast domain for F = {ffn:,} (bound {bounds.data_sheet:.2f})"
        )
        rate = bounds.reached_bytes_per_s / 1e9
        fitted = f"at the {rate:.0f} GB/s that long collectives reach {int(bounds.reached)} ({bounds.reached:.2f})"
        facts.append(("tensor parallel", f"{paper}; {fitted}"))
    return facts


def _lines(cluster: Cluster, rows: list[LevelRoofline], bounds: TensorBounds | None, stages: int) -> list[str]:
    notes = ["Critical batch: backward compute equals gradient traffic at datasheet rates, 2 bytes per gradient."]
    if any(row.dp_sharp_tokens is not None for row in rows):
        notes.append(_notes.SHARP)
    if stages > 1:
        notes.append(f"{stages} pipeline stages: each reduces its own layers; tokens are per GPU of all stages.")
    if not all(row.crossed for row in rows):
        notes.append("'-': the inner axis covers the level, so no gradient crosses it.")
    if bounds is None and cluster.gpu.name.startswith("h100") and cluster.levels[0].kind == "nvlink":
        notes.append(_notes.NVLINK_MEASURED)
    return notes


def _errata(cluster: Cluster, rows: list[LevelRoofline], bound: bool) -> list[str]:
    notes = []
    if cluster.gpu.name.startswith("h100") and cluster.levels[0].kind == "nvlink":
        notes += [_notes.SPINE] if len(rows) > 2 else []
        notes += [_notes.TENSOR_BOUND] if bound else []
        notes.append(_notes.ALL_GATHER)
    if cluster.gpu.architecture == "Blackwell" and cluster.levels[0].kind == "nvlink":
        rate, peak = cluster.levels[0].usable_bandwidth, cluster.gpu.peak("bf16")
        tokens = critical_tokens(peak, rate, in_network=True)
        notes.append(_notes.on_blackwell(cluster.gpu.name, tokens, tensor_parallel_ways(16_000, rate, peak)))
    return [*notes, *_notes.on_gpu(cluster.gpu.name, cluster.gpu.architecture)]


def _data(
    cluster: Cluster, dtype: str, rows: list[LevelRoofline], bounds: TensorBounds | None, notes: list[str]
) -> dict[str, Any]:
    gpu = cluster.gpu
    return {
        "cluster": cluster.name, "gpu": gpu.name, "gpus": cluster.gpus, "dtype": dtype,
        "peak_flops_per_s": gpu.peak(dtype), "critical_flop_per_byte": critical_intensity(gpu, dtype),
        "vector_flops_per_s": vector_flops(gpu, gpu.base_clock_hz),
        "vector_boost_flops_per_s": vector_flops(gpu, gpu.boost_clock_hz),
        "fp32_cores": gpu.fp32_cores, "shared_memory_bytes": shared_memory_bytes(gpu),
        "domain_gpus": cluster.node_size, "domain_bytes_per_s": domain_bandwidth(cluster),
        "bisection_bytes_per_s": bisection_bandwidth(cluster),
        "levels": [msgspec.to_builtins(row) for row in rows],
        "node_egress_bytes_per_s": cluster.node_size * cluster.levels[1].usable_bandwidth
        if len(cluster.levels) > 1 else None,
        "tensor_parallel_bound_ways": None if bounds is None else bounds.data_sheet,
        "tensor_parallel_reached_ways": None if bounds is None else bounds.reached,
        "reached_bytes_per_s": None if bounds is None else bounds.reached_bytes_per_s, "notes": notes,
    }  # fmt: skip
