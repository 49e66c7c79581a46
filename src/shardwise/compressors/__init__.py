"""Compressors: one file each, found by the registry under the name of the file."""

from functools import cache

from shardwise.compressors._contract import Compressor
from shardwise.compressors._draw import Draw
from shardwise.registry import closest, plugins

__all__ = ["Compressor", "Draw", "compressor", "compressors"]


@cache
def compressors() -> dict[str, type[Compressor]]:
    """Every known compressor by name."""
    found: dict[str, type[Compressor]] = {}
    for name, plugin in plugins("shardwise.compressors", "COMPRESSOR").items():
        if not (isinstance(plugin, type) and issubclass(plugin, Compressor)):
            raise TypeError(f"compressors/{name}.py: COMPRESSOR is {plugin!r}, not a kind of Compressor")
        found[name] = plugin
    return found


def compressor(name: str, **settings: float | int | bool) -> Compressor:
    """A compressor by name: compressor('top_k', ratio=0.01)."""
    known = compressors()
    if name not in known:
        raise ValueError(f"compressor: {name!r} is unknown; {closest(name, list(known))}")
    return known[name].of(**settings)
