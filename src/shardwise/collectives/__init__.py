"""Collective algorithms: one file each, found by the registry under the name of the file."""

from functools import cache

from shardwise.collectives._contract import FABRIC_SWITCH, NODE_SWITCH, OPS, Collective, Load, Ran, Round, Shape
from shardwise.registry import closest, plugins

__all__ = [
    "FABRIC_SWITCH", "NODE_SWITCH", "OPS", "Collective", "Load", "Ran", "Round", "Shape", "collective", "collectives",
]  # fmt: skip


@cache
def collectives() -> dict[str, Collective]:
    """Every known algorithm by name."""
    found: dict[str, Collective] = {}
    for name, plugin in plugins("shardwise.collectives", "COLLECTIVE").items():
        if not isinstance(plugin, Collective):
            raise TypeError(f"collectives/{name}.py: COLLECTIVE is a {type(plugin).__name__}, not a Collective")
        found[name] = plugin
    return found


def collective(name: str) -> Collective:
    known = collectives()
    if name not in known:
        raise ValueError(f"algorithm: {name!r} is unknown; {closest(name, list(known))}")
    return known[name]
