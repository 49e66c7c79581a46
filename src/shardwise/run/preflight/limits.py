"""Lines between pass, warn and fail: catalog/preflight.toml."""

import tomllib
from functools import cache
from pathlib import Path

import msgspec
from msgspec import Struct

from shardwise import catalog

TABLE = Path(catalog.__file__).parent / "preflight.toml"


class Limit(Struct, frozen=True, forbid_unknown_fields=True):
    value: float | list[int]
    source: str


@cache
def limits() -> dict[str, Limit]:
    """Section and name, joined by a dot."""
    table = tomllib.loads(TABLE.read_text(encoding="utf-8"))
    sections = {name: each for name, each in table.items() if isinstance(each, dict)}
    return {
        f"{section}.{name}": msgspec.convert(entry, Limit)
        for section, entries in sections.items() for name, entry in entries.items()
    }  # fmt: skip


def limit(name: str) -> float:
    value = limits()[name].value
    if isinstance(value, list):
        raise TypeError(f"{name} is a list")
    return value


def listed(name: str) -> list[int]:
    value = limits()[name].value
    if not isinstance(value, list):
        raise TypeError(f"{name} is not a list")
    return value
