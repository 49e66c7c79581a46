"""GPUs under a tree of network levels. A Cluster never knows a job.

Level 0 joins `degree` GPUs (an NVLink domain or a PCIe box); level 1 joins `degree` of those, and so on.
`bandwidth` is what ONE GPU can send into that level, each way, so a node of 8 GPUs with 8 x 400 Gbps NICs has
50 GB/s per GPU at its network level. Oversubscription divides it: 2 means half of the traffic fits.
"""

from math import prod

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from shardwise.spec.gpu import Gpu


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
    mesh: tuple[int, ...] = ()
    """without a switch: rings that 2, 3, ... neighbours can lay over their links side by side; the bandwidth is that
    of the last. Empty: a switch gives everyone all of it"""

    def __post_init__(self) -> None:
        if self.kind not in ("nvlink", "pcie", "network"):
            raise ValueError(f"level {self.name}: kind is {self.kind!r}; write nvlink, pcie or network")
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
        if not self.mesh:
            return np.ones_like(members)
        rings = np.array([self.mesh[-1], self.mesh[-1], *self.mesh], dtype=np.float64)
        return np.asarray(rings[np.clip(members, 0, len(rings) - 1).astype(np.int64)] / self.mesh[-1])


class Cluster(Struct, frozen=True, kw_only=True):
    name: str
    gpu: Gpu
    gpus: int
    levels: tuple[Level, ...]
    source: str = ""
    assumed: str = ""
    """what nobody stated of the fabric and was taken for granted"""

    def __post_init__(self) -> None:
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
        """GPUs in the fastest domain (at most the whole cluster)."""
        return min(self.levels[0].degree, self.gpus)
