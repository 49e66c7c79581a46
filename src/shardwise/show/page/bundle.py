"""The page's modules as one plain script, for pages that are opened as files: browsers load modules from servers only.

What the modules may contain is little, on purpose: imports in one line each, exports of names where they are defined.
"""

import re
from pathlib import Path, PurePosixPath

_IMPORT = re.compile(r'^import \{ (?P<names>[^}]+) \} from "(?P<from>[^"]+)";$', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async function|function|const|class) (\w+))", re.MULTILINE)


def bundled(folder: Path, first: str) -> str:
    """Every module that `first` leads to, each before those that need it."""
    order: list[str] = []
    _collect(folder, first, order, ())
    bodies = "".join(_module(path, (folder / path).read_text(encoding="utf-8")) for path in order)
    return f'"use strict";\n(() => {{\nconst modules = {{}};\n{bodies}}})();\n'


def _collect(folder: Path, path: str, order: list[str], above: tuple[str, ...]) -> None:
    if path in above:
        raise ValueError(f"{path}: imports itself by way of {' > '.join(above)}")
    if path in order:
        return
    for found in _IMPORT.finditer((folder / path).read_text(encoding="utf-8")):
        _collect(folder, _from(path, found["from"]), order, (*above, path))
    order.append(path)


def _from(path: str, named: str) -> str:
    """The module another names, from the folder of all."""
    parts: list[str] = []
    for part in (PurePosixPath(path).parent / named).parts:
        if part == "..":
            parts.pop()
        elif part != ".":
            parts.append(part)
    return "/".join(parts)


def _module(path: str, text: str) -> str:
    names = _EXPORT.findall(text)
    body = _IMPORT.sub(lambda found: f'const {{ {found["names"]} }} = modules["{_from(path, found["from"])}"];', text)
    body = _EXPORT.sub("", body)
    return f'modules["{path}"] = (() => {{\n{body}\nreturn {{ {", ".join(names)} }};\n}})();\n'
