"""What a user writes for a cluster -> Cluster.

`dgx-h100:1024` a catalog fabric with that many GPUs      `dgx-h100` its first two levels, full
`8xh100` GPUs on the fabric that GPU usually has          `4x8xh100` nodes x GPUs per node x GPU
`site.yaml` a file in the form `to_yaml` prints           `2x8xa100@100Gbps/node` any of them with other network cards
"""

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from shardwise import catalog
from shardwise.fields import Fields, mapping_of
from shardwise.spec.cards import parted, with_cards
from shardwise.spec.cluster import Cluster, Level
from shardwise.spec.gpu import Gpu
from shardwise.spec.hardware import Fabric, Price, fabric_of, gpu_from, gpu_of, host_from, levels_from, price_of
from shardwise.spec.usual import usual_fabric
from shardwise.units import count_of

__all__ = ["Price", "cluster_from", "cluster_from_yaml", "cluster_of", "description_of", "gpu_of", "price_of"]

_FORMS = "write for example 'dgx-h100:1024', '8xh100', '4x8xh100' or the path of a .yaml file"
_COUNTED = re.compile(r"^(\d{1,9})x(?:(\d{1,9})x)?(.+)$", re.IGNORECASE)


def cluster_of(text: str | Mapping[str, Any]) -> Cluster:
    """The cluster a text names, or that fields describe as a YAML file does; bad input is a ValueError that says what
    to write."""
    if not isinstance(text, str):
        return _from_fields(text, "cluster")
    text = text.strip()
    if not text or len(text) > 4096:
        raise ValueError(f"cluster: {text[:40]!r} names nothing; {_FORMS}")
    name, cards = parted(text)
    if cards:
        return with_cards(cluster_of(name), cards, text)
    if text.lower().endswith((".yaml", ".yml")):
        from shardwise.spec.plain_yaml import read_yaml  # yaml takes long to import, and few clusters are files

        return cluster_from_yaml(read_yaml(Path(text)), Path(text).name)
    if text.lower().endswith((".xml", ".txt", ".json")):
        raise ValueError(
            f"cluster: {text!r} is not a cluster file; make one with 'shardwise catalog clusters --from FILE --yaml'"
        )
    counted = _COUNTED.match(text)
    if counted:
        first, second, gpu = counted.groups()
        return _of_gpus(text, int(first), int(second) if second else None, gpu_of(gpu))
    name, colon, count = text.partition(":")
    fabric = _fabric(name)
    if not colon:
        return _sized(fabric.name, fabric, math.prod(level.degree for level in fabric.levels[:2]))
    if not count.strip():
        raise ValueError(f"cluster {text!r}: the number of GPUs is missing; write for example '{fabric.name}:64'")
    gpus = count_of(count, f"cluster {text!r}: number of GPUs")
    return _sized(f"{fabric.name}:{gpus}", fabric, gpus)


def description_of(text: str) -> str:
    """What the catalog says about the fabric a text names; nothing for a file."""
    name = parted(text.strip())[0]
    if name.lower().endswith((".yaml", ".yml")):
        return ""
    counted = _COUNTED.match(name)
    return (usual_fabric(gpu_of(counted[3])) if counted else _fabric(name.partition(":")[0])).description


def _fabric(name: str) -> Fabric:
    try:
        return fabric_of(name)
    except ValueError as error:
        try:
            gpu = gpu_of(name).name
        except ValueError:
            raise ValueError(f"cluster: {error}; {_FORMS}") from error
        raise ValueError(f"cluster: {name!r} is a GPU, not a fabric; write '8x{gpu}' for 8 of them") from error


def _sized(name: str, fabric: Fabric, gpus: int, gpu: Gpu | None = None) -> Cluster:
    levels = _needed(fabric.levels, gpus)
    chip = gpu or gpu_of(fabric.gpu)
    return Cluster(name=name, gpu=chip, gpus=gpus, levels=levels, source=fabric.source, assumed=fabric.assumed,
                   link_layer=fabric.link_layer, host=fabric.host)  # fmt: skip


def _needed(levels: tuple[Level, ...], gpus: int) -> tuple[Level, ...]:
    """Levels above the one that already holds every GPU carry nothing."""
    size = 1
    for i, level in enumerate(levels):
        size *= level.degree
        if size >= gpus:
            return levels[: i + 1]
    return levels


def _of_gpus(text: str, first: int, per_node: int | None, gpu: Gpu) -> Cluster:
    fabric = usual_fabric(gpu)
    if per_node is None:
        return _sized(text, fabric, first, gpu)
    gpus, node = first * per_node, fabric.levels[0]
    if fabric.tray is None:
        if not 1 <= per_node <= node.degree:
            raise ValueError(f"cluster {text}: {fabric.name} nodes hold 1 to {node.degree} GPUs, not {per_node}")
        fabric = replace(fabric, levels=(replace(node, degree=per_node), *fabric.levels[1:]))
    return _sized(text, fabric, gpus, gpu)


def cluster_from(
    gpu: str | Gpu,
    gpus: int,
    node_size: int,
    network_bandwidth: float | None = None,
    *,
    node_bandwidth: float | None = None,
    network_latency_s: float | None = None,
    oversubscription: float = 1.0,
    network_reduces: bool = False,
    name: str | None = None,
) -> Cluster:
    """Two levels from plain numbers (bytes/s per GPU, each way), as tables of measurements state them.

    What is left out comes from the GPU and its usual fabric. Where one NVLink domain spans many hosts (GB200
    NVL72) `node_size` is the host's, and the domain keeps its own size.
    """
    chip = gpu_of(gpu) if isinstance(gpu, str) else gpu
    usual = usual_fabric(chip)
    inner = usual.levels[0]
    if node_size < 1 or gpus < 1:
        raise ValueError(f"cluster: {gpus} GPUs in nodes of {node_size}; write 1 or more of each")
    for what, rate in (("network_bandwidth", network_bandwidth), ("node_bandwidth", node_bandwidth)):
        if rate is not None and not 0 < rate < math.inf:
            raise ValueError(f"cluster: {what} is {rate}; write bytes/s above 0, or None for the usual one")
    inner = replace(
        inner,
        degree=node_size if usual.tray is None else inner.degree,
        bandwidth=inner.bandwidth if node_bandwidth is None else node_bandwidth,
        # a larger node than the box is joined in some other way
        mesh=inner.mesh if node_size <= len(inner.mesh) + 1 else (),
        torus=inner.torus if node_size <= math.prod(inner.torus) else (),
    )
    outer = usual.levels[1]
    outer = Level(
        name="network",
        kind="network",
        degree=max(1, math.ceil(gpus / inner.degree)),
        bandwidth=outer.bandwidth if network_bandwidth is None else network_bandwidth,
        latency_s=outer.latency_s if network_latency_s is None else network_latency_s,
        reduces=network_reduces,
        oversubscription=oversubscription,
    )
    label = name or f"{math.ceil(gpus / node_size)}x{min(node_size, gpus)}x{chip.name}"
    levels = _needed((inner, outer), gpus)
    return Cluster(name=label, gpu=chip, gpus=gpus, levels=levels, source=usual.source, assumed=usual.assumed,
                   link_layer=usual.link_layer, host=usual.host)  # fmt: skip


def cluster_from_yaml(text: str, where: str = "cluster") -> Cluster:
    """A cluster from the text of a YAML file in the form `to_yaml` prints."""
    from shardwise.spec.plain_yaml import parse_yaml

    return _from_fields(parse_yaml(text, where), where)


def _from_fields(data: object, where: str) -> Cluster:
    example = "'gpu: h100', 'gpus: 64' and 'levels:'"
    fields = Fields(mapping_of(data, where, example), where)
    gpu = _gpu(fields.value("gpu", "for example 'gpu: h100'"), fields.at("gpu"))
    gpus, levels = fields.whole("gpus", example="64"), levels_from(fields)
    cluster = Cluster(
        name=fields.text("name", example="my-cluster", default=where),
        gpu=gpu,
        gpus=gpus,
        levels=levels,
        host=host_from(fields, levels[0].degree),
        source=fields.text("source", default=""),
        assumed=fields.text("assumed", default=""),
        link_layer=fields.text("link_layer", default=""),
    )
    fields.done()
    return cluster


def _gpu(value: Any, where: str) -> Gpu:
    if isinstance(value, str):
        known = ", ".join(catalog.names("gpus"))
        if not value.strip():
            raise ValueError(f"{where}: is empty; write one of {known}")
        return gpu_of(value[:100])
    return gpu_from(mapping_of(value, where, "a catalog name such as h100, or a mapping"), where)
