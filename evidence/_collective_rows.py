"""Measured collectives as rows, the cluster each ran on, and what the cost model says of them."""

import csv
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np

from shardwise.arrays import Floats
from shardwise.cost._links import NetworkConstants
from shardwise.cost.network import network_of
from shardwise.spec.cluster import Cluster
from shardwise.spec.load import cluster_of, gpu_of

MIB = 2.0**20
RINGS = Path(__file__).resolve().parents[1] / "evidence" / "timed" / "rings-across-nodes.csv"
"""published gathers and reduce-scatters over many nodes, which run on rings"""
FABRICS = {"V100": "dgx-v100", "A100": "dgx-a100", "H100": "dgx-h100", "H200": "dgx-h200", "H20": "dgx-h100",
           "B200": "dgx-b200", "B300": "dgx-b300", "GB200": "gb200-nvl72", "GB300": "gb300-nvl72"}  # fmt: skip
EFA = {"A100": "aws-p4d", "H100": "aws-p5", "H200": "aws-p5", "B200": "aws-p5"}
GENERATIONS = {"V": 2, "A": 3, "H": 4}


@dataclass(frozen=True)
class Row:
    source: str
    gpu: str
    op: str
    gpus: int
    nodes: int
    bytes: float
    seconds: float
    efa: bool
    algorithm: str | None
    gbps: float | None = None
    """of a GPU's network card, where it is not its reference system's"""

    @property
    def stride(self) -> int:
        """Where a test runs on some GPUs of each node: the ranks from one to the next."""
        return 1 if self.gbps is None else 8 * self.nodes // self.gpus

    @property
    def generation(self) -> int:
        return GENERATIONS.get(self.gpu[0], 5)

    @property
    def fabric(self) -> str:
        """The hardware, whoever measured on it and however many of its GPUs: what is left out of a fit as one."""
        return f"{self.gpu} " + ("node" if self.nodes == 1 else "EFA" if self.efa else "RDMA")

    @property
    def family(self) -> str:
        """The kind of link that carries it, on all GPUs that have it."""
        return f"NVLink{self.generation}" if self.nodes == 1 else "EFA" if self.efa else "RDMA"

    @property
    def trusted(self) -> bool:
        """Short collectives timed from the host carry its launch overhead; those of the graph-captured sweep do not."""
        least = MIB if self.nodes > 1 else 16 * MIB
        return self.source == "aiconfigurator" or self.bytes >= least


def read(path: Path) -> list[Row]:
    """Every row with a time; rows that state only a peak bandwidth have neither bytes nor time."""
    rows = []
    with path.open(newline="", encoding="utf-8") as file:
        for line in csv.DictReader(file):
            gpu = line["gpu"].split("-")[0]
            if not line["time_us"] or gpu not in FABRICS or not line["gpus"]:
                continue
            fabric = line["fabric"]
            algorithm = "ring" if "Ring" in fabric else "nvls_tree" if fabric.endswith("NVLSTree") else None
            inside = int(line["nodes"]) == 1 or fabric == "NVL72"
            rows.append(
                Row(line["source"], gpu, {"alltoall": "all_to_all"}.get(line["op"], line["op"]), int(line["gpus"]),
                    1 if inside else int(line["nodes"]), float(line["bytes"]), float(line["time_us"]) * 1e-6,
                    "EFA" in fabric, algorithm)
            )  # fmt: skip
    return rows


def read_rings(path: Path = RINGS) -> list[Row]:
    with path.open(newline="", encoding="utf-8") as file:
        return [
            Row(line["source"], line["gpu"].split("-")[0], line["op"], int(line["gpus"]), int(line["nodes"]),
                float(line["bytes"]), float(line["time_us"]) * 1e-6, False, None, float(line["internode_gbps_per_gpu"]))
            for line in csv.DictReader(file)
        ]  # fmt: skip


def cluster(row: Row, efa_latency: float | None = None) -> Cluster:
    """`efa_latency`: in place of what the catalog states."""
    if row.gbps is not None:
        found = cluster_of(f"{FABRICS[row.gpu]}:{8 * row.nodes}")
        node, *above = found.levels
        network = [msgspec.structs.replace(level, bandwidth=row.gbps / 8.0 * 1e9) for level in above]
        return msgspec.structs.replace(found, levels=(node, *network))
    if not (row.efa and row.nodes > 1):
        found = cluster_of(f"{FABRICS[row.gpu]}:{max(row.gpus, 8)}")
        return msgspec.structs.replace(found, gpu=gpu_of("h20")) if row.gpu == "H20" else found
    found = cluster_of(f"{EFA[row.gpu]}:{row.gpus}")
    usual = cluster_of(f"{FABRICS[row.gpu]}:8")
    network = found.levels[1]
    if efa_latency is not None:
        network = msgspec.structs.replace(network, latency_s=efa_latency)
    return msgspec.structs.replace(found, levels=(usual.levels[0], network), gpu=usual.gpu)


class Batch:
    """Rows that share a cluster, an operation and an algorithm, as arrays."""

    def __init__(self, rows: list[Row]) -> None:
        self.rows = rows
        self.bytes = np.array([row.bytes for row in rows])
        self.size = np.array([row.gpus for row in rows])
        self.measured = np.array([row.seconds for row in rows])

    def predicted(self, links: NetworkConstants, efa_latency: float | None) -> Floats:
        row = self.rows[0]
        network = network_of(cluster(row, efa_latency), links=links)
        return network.seconds(row.op, self.bytes, self.size, row.stride, algorithm=row.algorithm)


def batches(rows: Iterable[Row]) -> list[Batch]:
    found: dict[tuple[object, ...], list[Row]] = defaultdict(list)
    for row in rows:
        gpus = 8 if row.nodes == 1 and row.gpus <= 8 else row.gpus
        found[(row.fabric, row.op, row.algorithm, gpus, row.gbps, row.stride)].append(row)
    return [Batch(list(group)) for group in found.values()]


def errors(links: NetworkConstants, efa_latency: float | None, rows: Iterable[Row]) -> list[tuple[Row, float]]:
    found = []
    for batch in batches(rows):
        relative = batch.predicted(links, efa_latency) / batch.measured - 1.0
        found += list(zip(batch.rows, relative.tolist(), strict=True))
    return found
