"""GPUs under a tree of network levels. A Cluster never knows a job.

Level 0 joins `degree` GPUs (an NVLink domain or a PCIe box); level 1 joins `degree` of those, and so on.
`bandwidth` is what ONE GPU can send into that level, each way, so a node of 8 GPUs with 8 x 400 Gbps NICs has
50 GB/s per GPU at its network level. Oversubscription divides it: 2 means half of the traffic fits.
"""

from itertools import accumulate
from math import prod
from operator import mul

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from shardwise.spec.gpu import Gpu

CROSS_RAIL = ("nvlink", "spine")
LINK_LAYERS = ("", "ethernet", "infiniband", "omni-path", "efa")
"""empty: nobody stated it"""
REACHED = {"omni-path": 0.25}
"""part of a node's cards that collectives use: with NCCL's own transport all channels of a node with four Omni-Path
adapters go through one of them (bigscience-workshop/bigscience experiments/bandwidth/n4_a100_all_reduce_bench.txt:
NET/IB/1 in every line, 5 GB/s of 50)"""

EXCHANGED = {"efa": 0.4}
"""part of its network's bandwidth that an all-to-all reaches in which each GPU sends to those of other rails too: 20.1
of 50 GB/s between two nodes, in pieces of 4 MiB; 43.7 within rails (uccl-project/uccl
ep/bench/alltoall/efa_alltoall_results.md)"""


class Level(Struct, frozen=True, kw_only=True):
    name: str
    kind: str
    """nvlink, pcie or network: which latency and efficiency constants apply"""
    degree: int
    bandwidth: float
    """bytes/s per GPU, each way, before oversubscription"""
    latency_s: float
    """added by crossing this level once, on top of the protocol's own latency"""
    reduces: bool = False
    """the switch can add numbers itself (NVLS, SHARP)"""
    oversubscription: float = 1.0
    rails: int = 1
    """parallel planes; NIC i of every node hangs on rail i"""
    cards: int = 0
    """network cards of a node, where its GPUs share them; 0: as many as GPUs"""
    cross_rail: str = "nvlink"
    """the way between two rails: over NVLink to the card of the other rail first, as NCCL does (PXN), or over a
    `spine`"""
    mesh: tuple[int, ...] = ()
    """without a switch: rings that 2, 3, ... neighbours can lay over their links side by side; the bandwidth is that
    of the last. Empty: a switch gives everyone all of it"""

    torus: tuple[int, ...] = ()
    """without a switch: blocks joined to their neighbours, so many along each axis; the bandwidth that of all links"""

    def __post_init__(self) -> None:
        if self.torus and (self.mesh or min(self.torus) < 2 or prod(self.torus) < self.degree):
            raise ValueError(
                f"level {self.name}: torus {list(self.torus)}; write two or more along each axis, {self.degree:,} or "
                "more in all, and no mesh"
            )
        if self.kind not in ("nvlink", "pcie", "network"):
            raise ValueError(f"level {self.name}: kind is {self.kind!r}; write nvlink, pcie or network")
        if self.cross_rail not in CROSS_RAIL:
            raise ValueError(f"level {self.name}: cross_rail is {self.cross_rail!r}; write nvlink or spine")
        if self.cards < 0:
            raise ValueError(f"level {self.name}: cards is {self.cards}; write how many a node has, or nothing")
        if self.degree < 1 or self.bandwidth <= 0 or self.latency_s < 0 or self.oversubscription < 1:
            raise ValueError(
                f"level {self.name}: degree {self.degree}, bandwidth {self.bandwidth:g}, latency {self.latency_s:g}, "
                f"oversubscription {self.oversubscription:g}; write degree >= 1, bandwidth > 0, latency >= 0, "
                "oversubscription >= 1"
            )
        # a smaller node keeps the mesh of the box it is cut from
        if self.mesh and not (
            len(self.mesh) >= self.degree - 1 and 0 < min(self.mesh) <= max(self.mesh) == self.mesh[-1]
        ):
            raise ValueError(
                f"level {self.name}: mesh {list(self.mesh)}; write the rings of 2, 3, ... {self.degree} GPUs, the last "
                "the most"
            )

    @property
    def usable_bandwidth(self) -> float:
        return self.bandwidth / self.oversubscription

    def mesh_share(self, members: NDArray[np.float64]) -> NDArray[np.float64]:
        """Part of the bandwidth that groups of so many neighbours reach."""
        if self.torus:
            # groups fill one axis after the other
            filled = [members > before for before in accumulate(self.torus[:-1], mul)]
            return np.asarray((1.0 + np.sum(filled, axis=0)) / len(self.torus))
        if not self.mesh:
            return np.ones_like(members)
        rings = np.array([self.mesh[-1], self.mesh[-1], *self.mesh], dtype=np.float64)
        return np.asarray(rings[np.clip(members, 0, len(rings) - 1).astype(np.int64)] / self.mesh[-1])


class Host(Struct, frozen=True, kw_only=True):
    """The computers that GPUs stand in, as the share of one GPU."""

    memory_bytes: float
    rated_watts: float = 0.0
    """of all of it, the GPU included; 0: nobody stated it"""
    source: str = ""

    def __post_init__(self) -> None:
        if not self.memory_bytes >= 0 or not self.rated_watts >= 0:
            raise ValueError(
                f"host: memory {self.memory_bytes:g} bytes, power {self.rated_watts:g} W; write memory of 0 or "
                "more such as '2 TB', and power of 0 or more"
            )


STATED = "--host-memory"
ASSUMED_HOST_BYTES = 128 * 2.0**30
"""for each GPU, where no host is stated: as Leonardo's, MareNostrum's and Azure's A100 nodes have it"""
HOST_RATING = 10.2e3 / (8 * 700.0)
"""rated power of a host over that of its GPUs where nobody states it: as DGX H100"""


class Cluster(Struct, frozen=True, kw_only=True):
    name: str
    gpu: Gpu
    gpus: int
    levels: tuple[Level, ...]
    source: str = ""
    assumed: str = ""
    """what nobody stated of the fabric and was taken for granted"""
    link_layer: str = ""
    """of the network: Ethernet drops or pauses, the other two send only what the other end has room for"""
    host: Host | None = None
    """None: nobody stated it"""

    def __post_init__(self) -> None:
        if self.link_layer not in LINK_LAYERS:
            raise ValueError(
                f"cluster {self.name}: link_layer is {self.link_layer!r}; write {', '.join(LINK_LAYERS[1:-1])} or "
                f"{LINK_LAYERS[-1]}, or leave it out"
            )
        if self.gpus < 1:
            raise ValueError(f"cluster {self.name}: gpus is {self.gpus}; write 1 or more")
        if not self.levels:
            raise ValueError(f"cluster {self.name}: needs at least one level")
        most = prod(level.degree for level in self.levels)
        if self.gpus > most:
            raise ValueError(
                f"cluster {self.name}: {self.gpus} GPUs asked for, its fabric carries {most}; write at most {most}"
            )

    @property
    def node_size(self) -> int:
        """GPUs of the job in one of the fastest domains, over as few of which it is spread evenly where it can be: 256
        on racks of 72 are four times 64."""
        nodes = -(-self.gpus // self.levels[0].degree)
        return self.gpus // nodes if self.gpus % nodes == 0 else self.levels[0].degree

    def with_host_memory(self, node_bytes: float) -> "Cluster":
        """With so much memory for the GPUs of the job in one of the fastest domains."""
        watts = self.host.rated_watts if self.host else 0.0
        return replace(self, host=Host(memory_bytes=node_bytes / self.node_size, rated_watts=watts, source=STATED))

    @property
    def host_bytes_per_gpu(self) -> float:
        """Of a host's memory."""
        return ASSUMED_HOST_BYTES if self.host is None else self.host.memory_bytes

    @property
    def rated_watts(self) -> float:
        """Of the hosts of the job, GPUs included."""
        each = self.host.rated_watts if self.host else 0.0
        return self.gpus * (each or HOST_RATING * self.gpu.power_watts)

    @property
    def blocks(self) -> tuple[int, ...]:
        """GPUs of the job in one block of each level."""
        return tuple(self.node_size * size for size in accumulate((level.degree for level in self.levels[1:]), mul,
                                                                  initial=1))  # fmt: skip

    @property
    def has_credits(self) -> bool:
        """Does a sender on its network know what the next switch has room for: nothing is dropped, nothing paused."""
        return self.link_layer in ("infiniband", "omni-path")

    @property
    def reached(self) -> float:
        """Part of its network's bandwidth that collectives can reach, whatever drives them."""
        return REACHED.get(self.link_layer, 1.0)

    @property
    def exchanged(self) -> float:
        """Part of that which an all-to-all between nodes can reach."""
        return EXCHANGED.get(self.link_layer, 1.0)

    @property
    def through_host(self) -> bool:
        """Is what one GPU of a node sends another copied into the host's memory and out of it again."""
        return self.levels[0].kind == "pcie" and not self.gpu.peer_to_peer

    @property
    def wires(self) -> tuple[float, ...]:
        """bytes/s that one GPU can send into each level, each way. Through the host both copies take their share of its
        memory."""
        inside, *above = (level.usable_bandwidth for level in self.levels)
        return (min(inside, self.gpu.host_bandwidth / 2.0) if self.through_host else inside, *above)

    def gpus_per_card(self, level: int) -> float:
        """GPUs of a node that share one card into a level; what one of them sends alone has all of it."""
        cards = self.levels[level].cards
        return max(self.levels[0].degree / cards, 1.0) if level and cards else 1.0

    @property
    def rails(self) -> int:
        """Leaves that the cards of one node hang on."""
        return min(self.levels[1].rails, self.node_size) if len(self.levels) > 1 else 1

    @property
    def forwards(self) -> bool:
        """Does a message to another rail go over NVLink to that rail's card first (PXN)."""
        return self.rails > 1 and self.levels[1].cross_rail == "nvlink" and self.levels[0].kind == "nvlink"
