"""`shardwise clusters`: the cluster catalog, or one cluster level by level."""

import sys
from typing import Annotated, Any

from cyclopts import Parameter

from shardwise import catalog
from shardwise.cli import _notes
from shardwise.cli._options import Json
from shardwise.cli._output import Cell, print_json, print_notes, print_table
from shardwise.estimate.roofline import level_sizes
from shardwise.spec.cluster import Cluster, Level
from shardwise.spec.load import cluster_of, to_yaml

HEADS = ["level", "kind", "GPUs", "GB/s per GPU", "TB/s in all", "us", "oversub.", "rails", "reduces"]


def clusters(
    name: Annotated[str | None, Parameter(help="dgx-h100, dgx-h100:1024, 8xh100, 4x8xh100 or a YAML file.")] = None,
    /,
    *,
    yaml: Annotated[bool, Parameter(negative=(), help="Print the cluster as a YAML file to edit.")] = False,
    json: Json = False,
) -> None:
    """The clusters shardwise knows, level by level; --yaml writes a file to edit."""
    if name is None:
        if yaml:
            raise ValueError("clusters: --yaml needs a name; write for example 'clusters dgx-h100:1024 --yaml'")
        _all(json)
        return
    cluster = cluster_of(name)
    if json:
        print_json(_data(cluster) | {"notes": _lines(cluster)})
    elif yaml:
        sys.stdout.write(to_yaml(cluster))
    else:
        title = f"{cluster.name}: {cluster.gpus:,} x {cluster.gpu.name} (bandwidths each way)"
        sizes = level_sizes(cluster)
        print_table(title, HEADS, (_cells(*pair) for pair in zip(cluster.levels, sizes, strict=True)), words=2)
        print_notes(_lines(cluster))


def _all(json: bool) -> None:
    known = [cluster_of(name) for name in catalog.names("fabrics")]
    if json:
        print_json({"clusters": [_data(cluster) for cluster in known]})
        return
    title = "clusters (members x bandwidth per GPU; write NAME:GPUS for a size)"
    print_table(title, ["name", "gpu", "kind", "fast domain", "network"], map(_summary, known), words=5)


def _summary(cluster: Cluster) -> list[Cell]:
    fast, *network = cluster.levels
    return [cluster.name, cluster.gpu.name, fast.kind, _level_text(fast), _level_text(network[0]) if network else None]


def _level_text(level: Level) -> str:
    return f"{level.degree} x {level.usable_bandwidth / 1e9:.3g} GB/s"


def _cells(level: Level, gpus: int) -> list[Cell]:
    return [
        level.name, level.kind, gpus, level.usable_bandwidth / 1e9, gpus * level.usable_bandwidth / 1e12,
        level.latency_s * 1e6, level.oversubscription, level.rails, "yes" if level.reduces else "no",
    ]  # fmt: skip


def _lines(cluster: Cluster) -> list[str]:
    spine = [_notes.SPINE] if cluster.name.startswith("dgx-h100") and len(cluster.levels) > 2 else []
    return [*([f"source: {cluster.source}"] if cluster.source else []), *spine]


def _data(cluster: Cluster) -> dict[str, Any]:
    return {
        "name": cluster.name, "gpu": cluster.gpu.name, "gpus": cluster.gpus, "source": cluster.source,
        "levels": [
            {
                "name": level.name, "kind": level.kind, "degree": level.degree, "gpus": gpus,
                "bytes_per_s_per_gpu": level.usable_bandwidth, "latency_s": level.latency_s,
                "oversubscription": level.oversubscription, "rails": level.rails, "reduces": level.reduces,
            } for level, gpus in zip(cluster.levels, level_sizes(cluster), strict=True)
        ],
    }  # fmt: skip
