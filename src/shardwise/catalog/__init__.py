"""Data that ships with shardwise: GPUs, fabrics, prices, models, training programs, layouts. One file is one entry; a
user may keep more in folders of their own (see the registry).

This module only finds and parses files; what a field means is known by the package that uses the entry.
An entry is found by its file name or by one of the `aliases` inside the file, in any case.
"""

import json
import os
import tomllib
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from shardwise.fields import read_file, short
from shardwise.registry import closest, folders, only_once

KINDS = ("gpus", "fabrics", "prices", "models", "programs", "layouts", "failures", "answers")
MOST_BYTES = 2**22
_ROOT = Path(__file__).parent


@cache
def _files(kind: str) -> dict[str, str]:
    """Where each entry is."""
    if kind not in KINDS:
        raise ValueError(f"catalog kind {kind!r} is unknown; {closest(kind, list(KINDS))}")
    found: dict[str, str] = {}
    for folder in (_ROOT / kind, *folders(f"catalog/{kind}")):
        for file in os.listdir(folder):
            stem, suffix = os.path.splitext(file)
            if suffix in (".toml", ".json"):
                only_once(f"catalog/{kind}", stem, found)
                found[stem] = os.path.join(folder, file)
    return dict(sorted(found.items()))


def _raw(kind: str, stem: str) -> bytes:
    return read_file(Path(_files(kind)[stem]), f"catalog/{kind}", MOST_BYTES, "a file with an entry")


@cache
def _parsed(kind: str, stem: str) -> dict[str, Any]:
    path = Path(_files(kind)[stem])
    try:
        text = _raw(kind, stem).decode("utf-8")
        data: dict[str, Any] = tomllib.loads(text) if path.suffix == ".toml" else json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: {error}") from None
    if not isinstance(data, dict):
        raise ValueError(f"{path}: holds {short(data)}, not an object; write {{...}} with the fields of an entry")
    aliases = data.get("aliases", [])
    if not isinstance(aliases, list) or not all(isinstance(alias, str) for alias in aliases):
        raise ValueError(f"{path}: aliases is {short(aliases)}; write a list of names")
    return data


@cache
def _stem_of(kind: str) -> dict[str, str]:
    """Every spelling, in lower case -> file name. Parses the whole kind: built on the first alias."""
    stems = {alias.lower(): stem for stem in _files(kind) for alias in _parsed(kind, stem).get("aliases", ())}
    return stems | {stem.lower(): stem for stem in _files(kind)}


@lru_cache(maxsize=1024)
def _stem_with(kind: str, alias: str) -> str | None:
    """The file name behind a spelling, where its file has it as it stands: only such files are parsed."""
    own = {stem.lower(): stem for stem in _files(kind)}
    if alias in own:
        return own[alias]
    known = alias.encode(errors="replace")
    for stem in _files(kind):
        if known in _raw(kind, stem).lower() and alias in map(str.lower, _parsed(kind, stem).get("aliases", ())):
            return stem
    return None


def names(kind: str) -> list[str]:
    """The entries of a kind, by file name, sorted."""
    return list(_files(kind))


def mentioning(kind: str, text: str) -> list[str]:
    """Those of them whose file has the text as it stands: the others need not be parsed to find who names it."""
    known = text.encode(errors="replace")
    return [stem for stem in _files(kind) if known in _raw(kind, stem)]


def resolve(kind: str, name: str) -> str:
    """The file name behind a name or alias; an unknown one is a ValueError that says what is near."""
    name = name.strip()
    if name in _files(kind):
        return name
    stem = _stem_with(kind, name.lower()) or _stem_of(kind).get(name.lower())
    if stem is None:
        raise ValueError(f"{kind[:-1]} {name!r} is unknown; {closest(name, names(kind))}")
    return stem


def entry(kind: str, name: str) -> dict[str, Any]:
    """The parsed file of an entry: a copy, so that a caller may change it."""
    copied: dict[str, Any] = _copy(_parsed(kind, resolve(kind, name)))
    return copied


def _copy(value: Any) -> Any:
    """Of what a TOML or JSON file holds: objects, lists, and what cannot change."""
    if isinstance(value, dict):
        return {key: _copy(item) for key, item in value.items()}
    return [_copy(item) for item in value] if isinstance(value, list) else value
