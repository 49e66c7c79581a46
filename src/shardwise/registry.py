"""Finds plug-ins: one file in a plug-in folder is one plug-in.

A plug-in module exports one object under a name its kind prescribes (`FAMILY`, `COLLECTIVE`, `SCHEDULE`).
Adding a thing is adding a file: nothing else lists it. The file lies in shardwise's own folder of that kind, or in a
folder of the same name below one that the environment variable SHARDWISE_PLUGINS names: MINE/schedules/my_schedule.py,
MINE/catalog/gpus/my-gpu.toml.
"""

import difflib
import importlib
import os
import pkgutil
import re
from collections.abc import Container, Mapping
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import TypeVar

T = TypeVar("T")
SEARCH_PATH = "SHARDWISE_PLUGINS"
LISTED, NEAREST = 40, 8  # names in an error message: all of so many, else the nearest


_SIZE = re.compile(r"(?<![a-z\d.])\d+(?:\.\d+)?[bmt](?![a-z\d])")
"""of a model, in its name: 70b, 0.6b"""


def closest(name: str, known: list[str]) -> str:
    """The end of an error message: the nearest known name, the whole list where it is short, else what comes near."""
    by_lower = {word.lower(): word for word in known}
    longer = sorted((word for word in by_lower if name and word.startswith(name.lower())), key=len)
    size = _SIZE.search(name.lower())
    alike = [word for word in by_lower if size and size[0] in _SIZE.findall(word)]
    near = longer or difflib.get_close_matches(name.lower(), alike, n=1, cutoff=0.4)
    near = near or difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=0.5)
    if near:
        return f"did you mean {by_lower[near[0]]!r}?"
    if len(known) <= LISTED:
        return "known: " + ", ".join(sorted(known))
    nearest = difflib.get_close_matches(name.lower(), by_lower, n=NEAREST, cutoff=0.0)
    return f"{len(known)} are known, the nearest: " + ", ".join(sorted(by_lower[word] for word in nearest))


@cache
def folders(kind: str) -> tuple[Path, ...]:
    """The user's own folders with plug-ins of a kind: 'schedules', 'catalog/gpus'."""
    roots = [Path(root) for root in os.environ.get(SEARCH_PATH, "").split(os.pathsep) if root]
    for root in roots:
        if not root.is_dir():
            raise ValueError(
                f"{SEARCH_PATH}: {str(root)!r} is not a folder; write one that holds {kind}/ with your files"
            )
    return tuple(root / kind for root in roots if (root / kind).is_dir())


def only_once(kind: str, name: str, found: Container[str]) -> None:
    """Which of two files of one name is meant, nobody can tell."""
    if name in found:
        raise ValueError(f"{SEARCH_PATH}: {kind} has {name!r} twice; give your file another name")


@cache
def plugin_names(package: str) -> tuple[str, ...]:
    """Of every plug-in of a package, sorted; names that start with '_' are helpers."""
    root = importlib.import_module(package)
    kind = "/".join(package.split(".")[2:])  # without the room: SHARDWISE_PLUGINS names kinds
    own = [str(folder) for folder in folders(kind)]
    root.__path__.extend(folder for folder in own if folder not in root.__path__)
    names: list[str] = []
    for folder in root.__path__:
        for found in pkgutil.iter_modules([folder]):
            if not found.name.startswith("_"):
                only_once(kind, found.name, names)
                names.append(found.name)
    return tuple(sorted(names))


@cache
def modules(package: str) -> dict[str, ModuleType]:
    """Every plug-in module of a package, by file name."""
    return {name: importlib.import_module(f"{package}.{name}") for name in plugin_names(package)}


def plugins(package: str, export: str) -> dict[str, object]:
    """The exported object of every plug-in of a package; a file without it is an error, not a silence."""
    return {name: _exported(module, package, export) for name, module in modules(package).items()}


def plugin_in(package: str, export: str, kind: type[T], name: str) -> T | None:
    """The exported object of the plug-in whose file has that name, and no other file is read; None: there is none."""
    if name not in plugin_names(package):
        return None
    found = _exported(importlib.import_module(f"{package}.{name}"), package, export)
    return _of_kind(found, package, export, kind, name)


def _exported(module: ModuleType, package: str, export: str) -> object:
    if not hasattr(module, export):
        raise TypeError(f"{module.__name__} is in the plug-in folder {package} but does not define {export}")
    return getattr(module, export)


def _of_kind(plugin: object, package: str, export: str, kind: type[T], name: str) -> T:
    if not isinstance(plugin, kind):
        raise TypeError(f"{package}.{name}: {export} is a {type(plugin).__name__}, not a {kind.__name__}")
    return plugin


def plugins_of(package: str, export: str, kind: type[T]) -> dict[str, T]:
    """The same where each is an object of a kind."""
    every = plugins(package, export)
    return {name: _of_kind(plugin, package, export, kind, name) for name, plugin in every.items()}


def plugin_classes(package: str, export: str, kind: type[T]) -> dict[str, type[T]]:
    """The same where each is a class below a kind."""
    found: dict[str, type[T]] = {}
    for name, plugin in plugins(package, export).items():
        if not (isinstance(plugin, type) and issubclass(plugin, kind)):
            raise TypeError(f"{package}.{name}: {export} is {plugin!r}, not a kind of {kind.__name__}")
        found[name] = plugin
    return found


def named(what: str, name: str, known: Mapping[str, T]) -> T:
    """The one of that name; another is a ValueError that says what is near."""
    if name not in known:
        raise ValueError(f"{what}: {name!r} is unknown; {closest(name, list(known))}")
    return known[name]
