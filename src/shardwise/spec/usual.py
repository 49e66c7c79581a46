"""The fabric a GPU stands on when the user names none.

The GPU's catalog file states it (`default_fabric`). Where it does not, what the chip's own links allow is assumed, in
the proportions of the boxes of the catalog, and whoever prices the cluster says so.
"""

from shardwise import catalog
from shardwise.spec.cluster import Level
from shardwise.spec.gpu import Gpu
from shardwise.spec.hardware import Fabric, fabric_of

UNKNOWN = "unknown"
"""written for `default_fabric` where a chip's own links are none of those described here"""
_CARDS = (800e9 / 8, 400e9 / 8, 200e9 / 8, 100e9 / 8)
"""bytes/s of network cards as they are sold"""
_NODE = 8


def usual_fabric(gpu: Gpu) -> Fabric:
    stated = catalog.entry("gpus", gpu.name).get("default_fabric") if gpu.name in catalog.names("gpus") else None
    if stated == UNKNOWN:
        raise ValueError(f"cluster: no fabric is known for gpu {gpu.name!r}; describe it in a .yaml file")
    return assumed_fabric(gpu) if stated is None else fabric_of(str(stated))


def assumed_fabric(gpu: Gpu) -> Fabric:
    """8 GPUs a node on their NVLink, or on PCIe; a network card as fast as the PCIe slot feeds for each GPU, in PCIe
    boxes two for the node; switches that do not narrow."""
    card = next((rate for rate in _CARDS if rate <= gpu.pcie_bandwidth), _CARDS[-1])
    link, cards = gpu.nvlink, _NODE if gpu.nvlink else 2
    node = Level(
        name="node", kind="nvlink" if link else "pcie", degree=_NODE, latency_s=0.6e-6 if link else 1e-6,
        bandwidth=link.bandwidth if link else gpu.pcie_bandwidth,
        reduces=link is not None and link.generation >= 4 and gpu.vendor == "NVIDIA",
    )  # fmt: skip
    shape = (("leaf", 32, 1e-6), ("spine", 16, 2e-6), ("core", 16, 3e-6))
    network = [
        Level(name=name, kind="network", degree=degree, bandwidth=card * cards / _NODE, latency_s=latency,
              rails=cards if name == "leaf" else 1)
        for name, degree, latency in shape
    ]  # fmt: skip
    joined = f"{'NVLink' if link else 'PCIe'} at {node.bandwidth / 1e9:.4g} GB/s each way"
    assumed = (
        f"none is stated for {gpu.name}: assumed nodes of {_NODE} GPUs joined by {joined}, with {cards} NICs "
        f"of {card * 8 / 1e9:.0f} Gbps, and switches that carry all of it"
    )
    return Fabric(
        name=f"assumed-{gpu.name}", gpu=gpu.name, description=assumed, levels=(node, *network), source=gpu.source,
        date=gpu.date, assumed=assumed,
    )  # fmt: skip
