"""A planner's Cluster as a small emulated one: the same link graph, every rate divided by one number, the dilation."""

import os
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace

from shardwise.fabric.broken import slowed
from shardwise.fabric.tree import Tree
from shardwise.fabric.tree_build import tree_of
from shardwise.fabric.wiring import Wiring
from shardwise.registry import closest
from shardwise.spec.cluster import Cluster
from shardwise.spec.load import cluster_from_yaml, cluster_of
from shardwise_lab.knobs import Knobs

FOLDER = Path(__file__).parent / "fabrics"
MOST_GPUS = 16
MOST_TIERS = 2
CORE_BYTES_PER_S = 0.4e9 / 8
"""that all ports of the GPUs may send together for each core of this machine: beyond it the processor sets the pace"""
USUAL_CARD = 100e6 / 8
HASHED = ("leaf-spine",)
"""fabrics with a spine for each card of a leaf, picked by a hash"""


@dataclass(frozen=True)
class Emulated:
    tree: Tree
    """at the rates of the lab"""
    cluster: Cluster
    """as it stands for"""
    dilation: float
    knobs: Knobs

    @property
    def gpus(self) -> int:
        return self.tree.gpus

    @property
    def interface(self) -> str:
        """of a GPU, by which jobs find each other"""
        return "eth0" if self.tree.tiers else "nv0"


def fabric_names() -> list[str]:
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def named_cluster(text: str) -> tuple[Cluster, Wiring]:
    """One of the lab's own, or any the planner takes."""
    path = FOLDER / f"{text}.yaml"
    if text in fabric_names():
        wiring = Wiring(routing="ecmp", radix=2) if text in HASHED else Wiring()
        return cluster_from_yaml(path.read_text(encoding="utf-8"), path.name), wiring
    try:
        return cluster_of(text), Wiring()
    except ValueError as error:
        raise ValueError(f"on: {error}; or one of the lab's own, {closest(text, fabric_names())}") from None


def emulated_of(text: str, knobs: Knobs | None = None, wiring: Wiring | None = None) -> Emulated:
    cluster, own = named_cluster(text)
    return emulated(cluster, knobs or Knobs(), wiring or own)


def emulated(cluster: Cluster, knobs: Knobs, wiring: Wiring) -> Emulated:
    if not 2 <= cluster.gpus <= MOST_GPUS:
        raise ValueError(
            f"on: {cluster.name} has {cluster.gpus:,} GPUs; the lab builds 2 to {MOST_GPUS}: write a smaller cluster, "
            f"or one of {', '.join(fabric_names())}"
        )
    if knobs.oversubscription is not None:
        cluster = _oversubscribed(cluster, knobs.oversubscription)
    dilation = _dilation(cluster, knobs)
    levels = tuple(replace(level, bandwidth=level.bandwidth / dilation) for level in cluster.levels)
    if knobs.connections > 1:
        wiring = replace(wiring, connections=knobs.connections)
    tree = tree_of(replace(cluster, levels=levels), wiring)
    if len(tree.tiers) > MOST_TIERS:
        raise ValueError(
            f"on: {cluster.name} has {len(tree.tiers)} tiers of switches; the lab builds leaves and spines: write a "
            "cluster of at most three levels"
        )
    for name, share in knobs.slow:
        slower = slowed(tree, name, share)
        assert isinstance(slower, Tree)
        tree = slower
    return Emulated(tree, cluster, dilation, knobs)


def _oversubscribed(cluster: Cluster, factor: float) -> Cluster:
    if len(cluster.levels) < 3:
        raise ValueError(f"over: {cluster.name} has no level above its leaves; write a cluster with a spine level")
    *below, top = cluster.levels
    return replace(cluster, levels=(*below, replace(top, oversubscription=factor)))


def _dilation(cluster: Cluster, knobs: Knobs) -> float:
    """So that a card has the rate asked for, or 100 Mbit/s; less where all ports of all GPUs are too much for the
    cores."""
    card = cluster.levels[min(1, len(cluster.levels) - 1)].bandwidth
    if knobs.card_bytes_per_s is not None:
        return card / knobs.card_bytes_per_s
    inside = cluster.levels[0].bandwidth if cluster.node_size > 1 else 0.0
    outside = card if len(cluster.levels) > 1 else 0.0
    budget = CORE_BYTES_PER_S * (os.cpu_count() or 1)
    return max(card / USUAL_CARD, cluster.gpus * (inside + outside) / budget)
