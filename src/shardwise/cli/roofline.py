"""`shardwise roofline`: how much work it takes to hide memory and network."""

from typing import Annotated, Any

import msgspec
from cyclopts import Parameter

from shardwise.calibrate.overlay import as_measured
from shardwise.cli import _notes
from shardwise.cli._options import Json, ProfileFile, profile_or_none
from shardwise.cli._output import Cell, print_facts, print_gap, print_json, print_notes, print_table
from shardwise.cli._target import known_dtype, missing_dtype, target_of
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
    target: Annotated[str, Parameter(help="A GPU (h100) or a cluster (dgx-h100:1024, 8xh100, a YAML file).")],
    /,
    *,
    dtype: Annotated[str, Parameter(help="dtype of the matrix products: tf32, fp16, bf16, fp8, fp4.")] = "bf16",
    inner: Annotated[int, Parameter(help="Ways the weights are already split by inner axes (TP, EP, PP).")] = 1,
    experts: Annotated[int, Parameter(help="Experts of a mixture-of-experts layer.")] = 1,
    active: Annotated[int, Parameter(help="Experts each token goes through.")] = 1,
    ffn: Annotated[str | None, Parameter(help="Feed-forward width F: prints the tensor-parallel bound.")] = None,
    glu: Annotated[bool, Parameter(help="The feed-forward is gated: three matrices instead of two.")] = False,
    profile: ProfileFile = None,
    json: Json = False,
) -> None:
    """Critical intensity (FLOP/byte) and critical batch (tokens per GPU) of a GPU or cluster."""
    cluster, measured = target_of(target), profile_or_none(profile)
    if measured is not None:
        cluster = as_measured(cluster, measured)
    rows = rooflines(cluster, dtype=known_dtype(dtype), inner=inner, experts=experts, active=active)
    width = None if ffn is None else count_of(ffn, "ffn")
    ways = None if width is None else tensor_parallel_ways(
        width, cluster.levels[0].usable_bandwidth, cluster.gpu.peak(dtype), matrices=3 if glu else 2
    )  # fmt: skip
    notes = [*missing_dtype(cluster.gpu, dtype), *_lines(cluster, rows, ways is not None)]
    if measured is not None:
        notes.append(f"rates of the GPU are those reached, not the datasheet's: {measured.words}")
    if json:
        print_json(_data(cluster, dtype, rows, ways, notes))
        return
    print_facts(
        f"{cluster.name}: {cluster.gpus:,} x {cluster.gpu.name}, {dtype}", _facts(cluster, dtype, rows, width, ways)
    )
    print_gap()
    print_table("tokens per GPU that hide the gradient traffic of a group spanning ...", HEADS, map(_cells, rows))
    print_notes(notes)


HEADS = ["level", "GPUs", "GB/s per GPU", "TB/s seen", "DP in network", "in practice", "DP ring", "FSDP"]


def _cells(row: LevelRoofline) -> list[Cell]:
    seen: list[Cell] = [row.level, row.gpus, row.link_bytes_per_s / 1e9, row.level_bytes_per_s / 1e12]
    if not row.crossed:
        return [*seen, None, None, None, None]
    tokens = (row.dp_sharp_tokens, row.dp_sharp_practice_tokens, row.dp_ring_tokens, row.fsdp_tokens)
    return [*seen, *(None if t is None else round(t) for t in tokens)]


def _facts(
    cluster: Cluster, dtype: str, rows: list[LevelRoofline], ffn: int | None, ways: float | None
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
    if rows[-1].crossed:
        best = rows[-1].dp_sharp_tokens or rows[-1].dp_ring_tokens
        facts.append(
            (
                "global batch",
                f"{best * cluster.gpus:,.0f} tokens at least, FSDP {rows[-1].fsdp_tokens * cluster.gpus:,.0f}",
            )
        )
    if ways is not None:
        facts.append(
            ("tensor parallel", f"up to {int(ways)} ways in the fast domain for F = {ffn:,} (bound {ways:.2f})")
        )
    return facts


def _lines(cluster: Cluster, rows: list[LevelRoofline], bound: bool) -> list[str]:
    notes = ["Critical batch: backward compute equals gradient traffic at datasheet rates, 2 bytes per gradient."]
    if any(row.dp_sharp_tokens is not None for row in rows):
        notes.append(_notes.SHARP)
    if not all(row.crossed for row in rows):
        notes.append("'-': the inner axis covers the level, so no gradient crosses it.")
    if cluster.gpu.name.startswith("h100") and cluster.levels[0].kind == "nvlink":
        notes.append(_notes.NVLINK_MEASURED)
        notes += [_notes.SPINE] if len(rows) > 2 else []
        notes += [_notes.TENSOR_BOUND] if bound else []
        notes.append(_notes.ALL_GATHER)
    if cluster.gpu.architecture == "Blackwell" and cluster.levels[0].kind == "nvlink":
        rate, peak = cluster.levels[0].usable_bandwidth, cluster.gpu.peak("bf16")
        tokens = critical_tokens(peak, rate, in_network=True)
        notes.append(_notes.on_blackwell(cluster.gpu.name, tokens, tensor_parallel_ways(16_000, rate, peak)))
    return [*notes, *_notes.on_gpu(cluster.gpu.name, cluster.gpu.architecture)]


def _data(
    cluster: Cluster, dtype: str, rows: list[LevelRoofline], ways: float | None, notes: list[str]
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
        "tensor_parallel_bound_ways": ways, "notes": notes,
    }  # fmt: skip
