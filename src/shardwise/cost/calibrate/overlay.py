"""A profile laid over what the planner assumes: the software's host cost, the network's constants, the datasheet."""

from collections.abc import Mapping
from statistics import median

from msgspec.structs import asdict, replace

from shardwise.cost._links import LinkConstants, NetworkConstants, Style, default_links
from shardwise.cost.calibrate.profile import Factors, Profile
from shardwise.cost.curve import AttentionLaw, Curve, curve_of
from shardwise.cost.network import Network, network_of
from shardwise.spec.cluster import Cluster
from shardwise.spec.gpu import Gpu
from shardwise.spec.software import Stack

MOST_EFFICIENCY = 2.0


def stack_with(stack: Stack, profile: Profile | None) -> Stack:
    """The stack on the measured machine: its host, and how far off the peaks of measured runs lay.

    A host cost fitted on runs of that stack holds its own Python too, which a profile does not measure: it stays.
    """
    if profile is None:
        return stack
    if profile.host is not None and "host_s_per_op" not in stack.fitted:
        stack = stack.changed(host_s_per_op=profile.host.seconds_per_op)
    offset = _learned_offset(profile)
    if offset:
        stack = stack.changed(base_bytes=stack.memory.base_bytes + offset)
    return stack


def _learned_offset(profile: Profile) -> float:
    """Median of measured less predicted peak over the runs that state one; one run is taken by half, since its layout
    may have a peak of its own."""
    offsets = [run.memory_offset_bytes for run in profile.runs if run.memory_offset_bytes is not None]
    return float(median(offsets)) * len(offsets) / (len(offsets) + 1.0) if offsets else 0.0


def curve_with(gpu: Gpu, profile: Profile | None) -> Curve:
    """The GPU's curve, with what a profile measured on such a GPU in place of the shipped constants."""
    shipped = curve_of(gpu)
    if profile is None:
        return shipped
    profile = profile.on(gpu)
    peaks = profile.peak_flops
    gemm = dict(shipped.gemm)
    for dtype, found in profile.gemm.items():
        gemm[dtype] = replace(gemm[dtype], peak=peaks[dtype], **asdict(found))
    if "bf16" in profile.gemm and "fp16" not in profile.gemm:
        # the same units at the same rate
        gemm["fp16"] = replace(gemm["fp16"], **asdict(profile.gemm["bf16"]))
    attention = {kernel: dict(passes) for kernel, passes in shipped.attention.items()}
    for side, law in profile.attention.get("flash", {}).items():
        attention["flash"][side] = AttentionLaw(**asdict(law))
    return replace(
        shipped,
        measured=shipped.gpu.lower(),
        source=profile.words,
        bandwidth=profile.memory_bandwidth or shipped.bandwidth,
        kernel_floor_s=profile.kernel_floor_s or shipped.kernel_floor_s,
        gemm=gemm,
        attention=attention,
        memory={**shipped.memory, **profile.memory},
        attention_peak=peaks.get("bf16", peaks.get("fp32", shipped.attention_peak)),
    )


def what_it_changes(profile: Profile, stack: Stack) -> list[str]:
    """What a profile changes besides kernel rates, one line each."""
    lines = []
    if profile.host is not None:
        stays = "host_s_per_op" in stack.fitted
        found = f"{profile.host.seconds_per_op * 1e6:.3g} us an operation"
        lines.append(f"host: {found} measured" + (f"; {stack.name} keeps its own, fitted on runs" if stays else ""))
    if profile.network is not None:
        lines += [
            f"network: {kind} latency x {found.latency:.3g} and bandwidth x {found.bandwidth:.3g}, as measured"
            for kind, found in profile.network.factors.items()
        ]
    if not profile.complete:
        lines.append("the calibration was interrupted: constants it had not reached stay as shipped")
    return lines


def as_measured(cluster: Cluster, profile: Profile) -> Cluster:
    """The cluster with the rates its GPU and links reach in place of the datasheet's."""
    gpu = cluster.gpu
    profile.on(gpu)
    peaks = dict(gpu.peak_flops)
    for dtype, law in profile.gemm.items():
        peaks[dtype] = profile.peak_flops[dtype] * law.e_max * law.sustained
    share = profile.memory.get("stream")
    bandwidth = profile.memory_bandwidth * share if share else gpu.memory_bandwidth
    factors = profile.network.by_kind if profile.network else {}
    levels = tuple(
        replace(level, bandwidth=level.bandwidth * factors[level.kind].bandwidth) if level.kind in factors else level
        for level in cluster.levels
    )
    return replace(cluster, gpu=replace(gpu, peak_flops=peaks, memory_bandwidth=bandwidth), levels=levels)


def network_with(
    cluster: Cluster, factors: Mapping[str, Factors], efficiency: Mapping[str, float] | None = None
) -> Network:
    """The network with measured factors on the latency and bandwidth of each kind of level.

    `efficiency`: a further factor on the bandwidth, by name of the level.
    """
    reached = dict(efficiency or {})
    for level in cluster.levels:
        if level.kind in factors:
            both = reached.get(level.name, 1.0) * factors[level.kind].bandwidth
            reached[level.name] = min(both, MOST_EFFICIENCY)
    slowed = {kind: found.latency for kind, found in factors.items() if found.latency != 1.0}
    if not slowed:
        return network_of(cluster, efficiency=reached)
    levels = tuple(replace(level, latency_s=level.latency_s * slowed.get(level.kind, 1.0)) for level in cluster.levels)
    return network_of(replace(cluster, levels=levels), efficiency=reached, links=_slower(slowed))


def _slower(factors: Mapping[str, float]) -> NetworkConstants:
    links = default_links()
    found = {name: _scaled(link, factors.get(_kind(name), 1.0)) for name, link in links.link.items()}
    return replace(links, link=found)


def _kind(name: str) -> str:
    return "nvlink" if name.startswith("nvlink") else name


def _scaled(link: LinkConstants, factor: float) -> LinkConstants:
    def style(found: Style | None) -> Style | None:
        if found is None:
            return None
        return replace(
            found,
            step_us=tuple(value * factor for value in found.step_us),
            base_us=tuple(value * factor for value in found.base_us),
        )

    return replace(link, **{name: style(getattr(link, name)) for name in ("ring", "pairwise", "tree", "switch")})
