"""A cluster as YAML that a person can edit and `cluster_of` reads back as the same cluster."""

from collections.abc import Callable
from typing import Any

import yaml

from shardwise import catalog
from shardwise.spec.cluster import Cluster, Level
from shardwise.spec.gpu import HOST_BYTES_PER_S, Gpu
from shardwise.spec.hardware import gpu_of
from shardwise.units import bytes_of, flops_of, hertz_of, rate_of, seconds_of, watts_of

_GIGA = (("T", 1e12), ("G", 1e9), ("M", 1e6))
_UNITS: dict[Callable[[str, str], float], list[tuple[str, float]]] = {
    bytes_of: [("GiB", 2.0**30), ("MiB", 2.0**20), ("KiB", 2.0**10), ("GB", 1e9), ("B", 1.0)],
    rate_of: [*((f"{p}B/s", s) for p, s in _GIGA), ("B/s", 1.0)],
    seconds_of: [("us", 1e-6), ("s", 1.0)],
    flops_of: [("TFLOP/s", 1e12), ("FLOP/s", 1.0)],
    hertz_of: [("GHz", 1e9), ("MHz", 1e6), ("Hz", 1.0)],
    watts_of: [("W", 1.0)],
}


def quantity_text(value: float, parse: Callable[[str, str], float]) -> str:
    """A short text with a unit that parses back to exactly this value; the last unit of a kind always can."""
    units = _UNITS[parse]
    for digits in (6, 12):
        for unit, scale in units:
            text = f"{value / scale:.{digits}g} {unit}"
            if 0.1 <= value / scale < 10**digits and parse(text, "value") == value:
                return text
    return f"{value!r} {units[-1][0]}"


def _gpu(gpu: Gpu) -> str | dict[str, Any]:
    if gpu.name in catalog.names("gpus") and gpu_of(gpu.name) == gpu:
        return gpu.name
    data: dict[str, Any] = {
        "name": gpu.name,
        "vendor": gpu.vendor,
        "architecture": gpu.architecture,
        "memory": quantity_text(gpu.memory_bytes, bytes_of),
        "memory_bandwidth": quantity_text(gpu.memory_bandwidth, rate_of),
        "peak": {dtype: quantity_text(rate, flops_of) for dtype, rate in gpu.peak_flops.items()},
        "sms": gpu.sms,
        "l2": quantity_text(gpu.l2_bytes, bytes_of),
        "shared_per_sm": quantity_text(gpu.shared_bytes_per_sm, bytes_of),
        "fp32_cores": gpu.fp32_cores,
        "base_clock": quantity_text(gpu.base_clock_hz, hertz_of),
        "boost_clock": quantity_text(gpu.boost_clock_hz, hertz_of),
        "power": quantity_text(gpu.power_watts, watts_of),
        "pcie_bandwidth": quantity_text(gpu.pcie_bandwidth, rate_of),
    }
    if gpu.nvlink:
        link = quantity_text(gpu.nvlink.link_bandwidth, rate_of)
        data["nvlink"] = {
            "generation": gpu.nvlink.generation,
            "links": gpu.nvlink.links,
            "link_bandwidth": link,
        }
    if gpu.host_bandwidth != HOST_BYTES_PER_S:
        data["host_bandwidth"] = quantity_text(gpu.host_bandwidth, rate_of)
    if not gpu.peer_to_peer:
        data["peer_to_peer"] = False
    optional = {"aliases": list(gpu.aliases), "source": gpu.source, "date": gpu.date}
    return data | {key: value for key, value in optional.items() if value}


def _level(level: Level) -> dict[str, Any]:
    data: dict[str, Any] = {
        "name": level.name,
        "kind": level.kind,
        "degree": level.degree,
        "bandwidth": quantity_text(level.bandwidth, rate_of),
        "latency": quantity_text(level.latency_s, seconds_of),
    }
    optional = {
        "reduces": (level.reduces, False),
        "oversubscription": (level.oversubscription, 1.0),
        "rails": (level.rails, 1),
        "cards": (level.cards, 0),
        "cross_rail": (level.cross_rail, "nvlink"),
        "mesh": (list(level.mesh), []),
        "torus": (list(level.torus), []),
    }
    return data | {key: value for key, (value, usual) in optional.items() if value != usual}


def to_yaml(cluster: Cluster) -> str:
    """The cluster as an editable file: bandwidths are per GPU, each way; the fastest level comes first."""
    data: dict[str, Any] = {"name": cluster.name, "gpu": _gpu(cluster.gpu), "gpus": cluster.gpus}
    data["levels"] = [_level(level) for level in cluster.levels]
    if (host := cluster.host) is not None:
        each = cluster.levels[0].degree
        data["host"] = {"memory": quantity_text(each * host.memory_bytes, bytes_of)}
        data["host"] |= {"power": quantity_text(each * host.rated_watts, watts_of)} if host.rated_watts else {}
        data["host"] |= {"source": host.source} if host.source else {}
    stated = {"source": cluster.source, "assumed": cluster.assumed, "link_layer": cluster.link_layer}
    data |= {key: value for key, value in stated.items() if value}
    text: str = yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=110)
    return text
