"""Every program whose launch files are known: those that are written too, and those that are only read."""

from functools import cache

from shardwise.programs.formats._contract import Format
from shardwise.registry import closest, plugins


@cache
def readers() -> dict[str, Format]:
    found: dict[str, Format] = {}
    for file, target in plugins("shardwise.programs.formats", "FORMAT").items():
        if not isinstance(target, Format) or target.name != file:
            raise TypeError(f"formats/{file}.py: FORMAT is not a Format, or has another name than its file")
        found[target.name] = target
    return found


@cache
def formats() -> dict[str, Format]:
    """Targets of `export`."""
    return {name: target for name, target in readers().items() if target.write is not None}


def format_of(name: str) -> Format:
    name = name.replace("-", "_")
    if name not in formats():
        raise ValueError(f"to: {name!r} is not a target; {closest(name, list(formats()))}")
    return formats()[name]
