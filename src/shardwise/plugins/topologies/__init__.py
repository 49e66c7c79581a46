"""Graphs of who averages with whom: one file per graph, found by the registry under the name of the file."""

from functools import cache

from shardwise.plugins.topologies._contract import GossipTopology, MixingRound
from shardwise.registry import named, plugin_classes

__all__ = ["GossipTopology", "MixingRound", "topologies", "topology"]


@cache
def topologies() -> dict[str, type[GossipTopology]]:
    """Every known graph by name."""
    return plugin_classes("shardwise.plugins.topologies", "TOPOLOGY", GossipTopology)  # type: ignore[type-abstract]


def topology(name: str) -> GossipTopology:
    """The graph with its default settings; 'base_2' to 'base_9' are `base` with a degree of one less."""
    known = topologies()
    base, _, size = name.rpartition("_")
    if base == "base" and size.isdigit() and 2 <= int(size) <= 9:
        return known["base"](degree_limit=int(size) - 1)  # type: ignore[call-arg]
    return named("topology", name, known)()
