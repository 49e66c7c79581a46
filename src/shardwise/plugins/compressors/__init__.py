"""Compressors: one file each, found by the registry under the name of the file."""

from functools import cache

from shardwise.plugins.compressors._contract import Compressor
from shardwise.plugins.compressors._draw import Draw
from shardwise.plugins.compressors._repeat import repeated
from shardwise.registry import named, plugin_classes

__all__ = ["Compressor", "Draw", "compressor", "compressors", "repeated"]


@cache
def compressors() -> dict[str, type[Compressor]]:
    """Every known compressor by name."""
    return plugin_classes("shardwise.plugins.compressors", "COMPRESSOR", Compressor)  # type: ignore[type-abstract]


def compressor(name: str, **settings: float | int | bool) -> Compressor:
    """A compressor by name: compressor('top_k', ratio=0.01)."""
    return named("compressor", name, compressors()).of(**settings)
