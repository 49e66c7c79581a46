"""Finds plug-ins: one file in a plug-in folder is one plug-in.

A plug-in module exports one object under a name its kind prescribes (`FAMILY`, `COLLECTIVE`, `SCHEDULE`).
Adding a thing is adding a file: nothing else lists it.
"""

import difflib
import importlib
import pkgutil
from functools import cache
from types import ModuleType


def closest(name: str, known: list[str]) -> str:
    """The end of an error message: the nearest known name, or the whole list."""
    near = difflib.get_close_matches(name.lower(), [k.lower() for k in known], n=1, cutoff=0.5)
    if near:
        return f"did you mean {next(k for k in known if k.lower() == near[0])!r}?"
    return "known: " + ", ".join(sorted(known))


@cache
def modules(package: str) -> dict[str, ModuleType]:
    """Every plug-in module of a package, by file name; names that start with '_' are helpers."""
    root = importlib.import_module(package)
    names = sorted(m.name for m in pkgutil.iter_modules(root.__path__) if not m.name.startswith("_"))
    return {name: importlib.import_module(f"{package}.{name}") for name in names}


def plugins(package: str, export: str) -> dict[str, object]:
    """The exported object of every plug-in of a package; a file without it is an error, not a silence."""
    found: dict[str, object] = {}
    for name, module in modules(package).items():
        if not hasattr(module, export):
            raise TypeError(f"{module.__name__} is in the plug-in folder {package} but does not define {export}")
        found[name] = getattr(module, export)
    return found
