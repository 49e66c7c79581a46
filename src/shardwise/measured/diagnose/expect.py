"""Measured collectives against what the cluster should give: a verdict by size, and what would explain a shortfall."""

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from shardwise import catalog
from shardwise.arrays import Floats
from shardwise.cost.calibrate.from_collectives import group_cluster, top_level
from shardwise.cost.calibrate.profile import Point
from shardwise.cost.network import BUS, Network, network_of
from shardwise.spec.cluster import Cluster, Level

MIB = 2.0**20
HELD = 0.8
"""share of measurements on fabrics left out of the fit that a band holds"""
NOISE = 0.05
"""a band is at least this wide on either side: repeated runs of nccl-tests differ by as much"""
SHARES = np.geomspace(0.02, 1.2, 90)
PARTS = (0.75, 0.5, 0.25, 0.125)
"""of a level's bandwidth: what is tried as the explanation"""
CLEARLY = 0.5
"""an explanation must bring the error down to this part of what it was"""
_TABLE = Path(catalog.__file__).parent / "collective_bands.toml"


@dataclass(frozen=True)
class Band:
    low: float
    """measured over expected bus bandwidth, less 1, that a tenth of left-out measurements lay below"""
    high: float


@dataclass(frozen=True)
class NetworkVerdict:
    """One size of one operation; bandwidths are nccl-tests' bus bandwidths in bytes/s."""

    op: str
    bytes: float
    measured: float
    expected: float
    low: float
    high: float
    level: str
    """whose links set the pace"""
    latency_share: float
    """of the expected time"""

    @property
    def ratio(self) -> float:
        return self.measured / self.expected

    @property
    def word(self) -> str:
        """Below the band, inside it, or above it."""
        return "low" if self.measured < self.low else "high" if self.measured > self.high else "ok"


@dataclass(frozen=True)
class SlowSuspect:
    level: str
    part: float
    """of its bandwidth that explains the long messages best"""
    misfit: float
    """median relative error that stays with it"""
    sizes: int
    """low sizes that the level sets the pace of"""


@dataclass(frozen=True)
class Expectation:
    verdicts: tuple[NetworkVerdict, ...]
    suspects: tuple[SlowSuspect, ...]
    """levels that would explain the long messages if they were slower, the best explanation first"""
    explanation: str
    """the one change of the cluster that brings the expectation closest; empty when none does"""
    latency: bool
    """only short messages are low: the start or the steps, not the links' rate"""

    @property
    def low_classes(self) -> tuple[str, ...]:
        """Classes of size of which at least half the sizes are low; of a sound cluster a tenth of all sizes is."""
        found = []
        for name in dict.fromkeys(size_class(verdict.bytes) for verdict in self.verdicts):
            words = [verdict.word for verdict in self.verdicts if size_class(verdict.bytes) == name]
            found += [name] if words.count("low") >= len(words) / 2 else []
        return tuple(found)

    @property
    def low(self) -> bool:
        return bool(self.low_classes)


def expect(points: Sequence[Point], cluster: Cluster) -> Expectation:
    """`points`: as programs/importers/nccl_tests.py reads them."""
    verdicts: list[NetworkVerdict] = []
    for (op, ranks, nodes), rows in _groups(points).items():
        if ranks > cluster.gpus:
            raise ValueError(
                f"on: {cluster.name} has {cluster.gpus} GPUs, the file has {ranks} ranks; write a larger one"
            )
        verdicts += _verdicts(op, ranks, nodes, rows, group_cluster(cluster, ranks, nodes))
    low = [verdict for verdict in verdicts if verdict.word == "low"]
    long = [verdict for verdict in low if verdict.latency_share < 0.5]
    return Expectation(
        verdicts=tuple(verdicts),
        suspects=_suspects(long or low, points, cluster),
        explanation=_explanation(points, cluster) if long else "",
        latency=bool(low) and not long,
    )


def size_class(bytes_: float) -> str:
    return "below 1 MiB" if bytes_ < MIB else "1 to 16 MiB" if bytes_ < 16 * MIB else "16 MiB and more"


def band_of(nodes: int, bytes_: float) -> Band:
    found = _bands()["one node" if nodes <= 1 else "several nodes"][size_class(bytes_)]
    return Band(min(found["low"], -NOISE), max(found["high"], NOISE))


@cache
def _bands() -> dict[str, dict[str, dict[str, float]]]:
    return tomllib.loads(_TABLE.read_text(encoding="utf-8"))


def bus_factor(op: str, ranks: int) -> float:
    """Bus over algorithm bandwidth, as nccl-tests counts it."""
    return BUS[op] * (ranks - 1) / ranks if op in BUS else 1.0


def _groups(points: Sequence[Point]) -> dict[tuple[str, int, int], list[Point]]:
    found: dict[tuple[str, int, int], list[Point]] = {}
    for point in points:
        found.setdefault((str(point["op"]), int(point["ranks"]), int(point["nodes"])), []).append(point)
    return {key: sorted(rows, key=lambda row: float(row["bytes"])) for key, rows in found.items()}


def _verdicts(op: str, ranks: int, nodes: int, rows: Sequence[Point], cluster: Cluster) -> list[NetworkVerdict]:
    size, seconds = _columns(rows)
    why = network_of(cluster).breakdown(op, size, ranks)
    found = []
    for index, (bytes_, took) in enumerate(zip(size.tolist(), seconds.tolist(), strict=True)):
        bus = bus_factor(op, ranks) * bytes_
        expected, band = bus / float(why.seconds[index]), band_of(nodes, bytes_)
        found.append(
            NetworkVerdict(
                op=op, bytes=bytes_, measured=bus / took, expected=expected, low=expected * (1 + band.low),
                high=expected * (1 + band.high), level=cluster.levels[int(why.level[index])].name,
                latency_share=float(why.latency[index] / why.seconds[index]),
            )
        )  # fmt: skip
    return found


def _columns(rows: Sequence[Point]) -> tuple[Floats, Floats]:
    return np.array([float(row["bytes"]) for row in rows]), np.array([float(row["seconds"]) for row in rows])


class Change(NamedTuple):
    """What may be wrong with a cluster."""

    words: str = ""
    nvls: bool = True
    pcie: bool = False
    """the node runs over PCIe"""
    level: str = ""
    part: float = 1.0
    """of that level's bandwidth"""

    def network(self, cluster: Cluster) -> Network:
        if self.pcie:
            node, rate = cluster.levels[0], cluster.gpu.pcie_bandwidth
            level = Level(name=node.name, kind="pcie", degree=node.degree, bandwidth=rate, latency_s=node.latency_s)
            cluster = replace(cluster, levels=(level, *cluster.levels[1:]))
        return network_of(cluster, nvls=self.nvls, efficiency={self.level: self.part} if self.level else None)


def _error(points: Sequence[Point], cluster: Cluster, change: Change) -> float:
    """Median |log(expected / measured)| of the longest messages of every group, where links decide."""
    errors: list[float] = []
    for (op, ranks, nodes), rows in _groups(points).items():
        long = [row for row in rows if float(row["bytes"]) >= max(MIB, float(rows[-1]["bytes"]) / 16)] or rows[-1:]
        size, seconds = _columns(long)
        network = change.network(group_cluster(cluster, ranks, nodes))
        errors += np.abs(np.log(network.seconds(op, size, ranks) / seconds)).tolist()
    return float(np.median(errors))


def _changes(levels: Sequence[Level]) -> list[Change]:
    found = []
    if levels[0].reduces:
        found.append(Change("the node's switches did not add (NVLS off: NCCL_NVLS_ENABLE, fabric manager)", nvls=False))
    if levels[0].kind == "nvlink":
        found.append(Change("the node ran over PCIe, not NVLink (P2P off? nvidia-smi nvlink -s)", pcie=True))
    for level in levels:
        hint = "cards down or unused? ibstat, NCCL_IB_HCA" if level.kind == "network" else "links down?"
        found += [Change(f"{level.name} at {p:.3g} of its bandwidth ({hint})", level=level.name, part=p) for p in PARTS]
    return found


def _explanation(points: Sequence[Point], cluster: Cluster) -> str:
    best = min(_changes(_reached(points, cluster)), key=lambda change: _error(points, cluster, change))
    return best.words if _error(points, cluster, best) < CLEARLY * _error(points, cluster, Change()) else ""


def _reached(points: Sequence[Point], cluster: Cluster) -> tuple[Level, ...]:
    """Levels that the widest group crosses."""
    widest = max(top_level(cluster, int(point["ranks"]), int(point["nodes"])) for point in points)
    return cluster.levels[: widest + 1]


def _suspects(low: Sequence[NetworkVerdict], points: Sequence[Point], cluster: Cluster) -> tuple[SlowSuspect, ...]:
    if not low:
        return ()
    found = []
    for level in _reached(points, cluster):
        errors = [_error(points, cluster, Change(level=level.name, part=float(part))) for part in SHARES]
        part = float(SHARES[int(np.argmin(errors))])
        if part < 1.0:
            found.append(
                SlowSuspect(level.name, part, min(errors), sum(verdict.level == level.name for verdict in low))
            )
    return tuple(sorted(found, key=lambda suspect: suspect.misfit))
