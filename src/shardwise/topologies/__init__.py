"""Who averages with whom: one file per graph, found by the registry under the name of the file."""

from functools import cache

from shardwise.registry import closest, plugins
from shardwise.topologies._contract import GossipTopology, MixingRound

__all__ = ["GossipTopology", "MixingRound", "topologies", "topology"]


@cache
def topologies() -> dict[str, type[GossipTopology]]:
    """Every known graph by name."""
    found: dict[str, type[GossipTopology]] = {}
    for name, plugin in plugins("shardwise.topologies", "TOPOLOGY").items():
        if not (isinstance(plugin, type) and issubclass(plugin, GossipTopology)):
            raise TypeError(f"topologies/{name}.py: TOPOLOGY is {plugin!r}, not a kind of GossipTopology")
        found[name] = plugin
    return found


def topology(name: str) -> GossipTopology:
    """The graph with its default settings; 'base_2' to 'base_9' are `base` with a degree of one less."""
    known = topologies()
    base, _, size = name.rpartition("_")
    if base == "base" and size.isdigit() and 2 <= int(size) <= 9:
        return known["base"](degree_limit=int(size) - 1)  # type: ignore[call-arg]
    if name not in known:
        raise ValueError(f"topology: {name!r} is unknown; {closest(name, list(known))}")
    return known[name]()
