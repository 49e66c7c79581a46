"""Collective algorithms: one file each, found by the registry under the name of the file."""

from functools import cache

from shardwise.plugins.collectives._contract import FABRIC_SWITCH, NODE_SWITCH, OPS, Collective, Load, Ran, Round, Shape
from shardwise.registry import named, plugins_of

__all__ = [
    "FABRIC_SWITCH", "NODE_SWITCH", "OPS", "Collective", "Load", "Ran", "Round", "Shape", "collective", "collectives",
]  # fmt: skip


@cache
def collectives() -> dict[str, Collective]:
    """Every known algorithm by name."""
    return plugins_of("shardwise.plugins.collectives", "COLLECTIVE", Collective)


def collective(name: str) -> Collective:
    return named("algorithm", name, collectives())
