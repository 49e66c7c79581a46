"""A Profile as the text of a file; `profile_of` reads it back."""

import json
from typing import Any

import msgspec

from shardwise.cost.calibrate.profile import Profile

MARK = "# Written by `shardwise calibrate`"
HEAD = (
    MARK + "; give it to any verb with --profile. SI units; shares are of peak_flops and\n"
    "# memory_bandwidth. [measured] holds the raw points; the planner reads the sections before it.\n"
)
DIGITS = 6


def to_toml(profile: Profile) -> str:
    data = _without_nothing(msgspec.to_builtins(profile))
    points, runs = data.pop("measured", {}), data.pop("runs", ())
    lines = [HEAD.rstrip()]
    _table(lines, (), data)
    for run in runs:
        lines += ["", "[[runs]]"]
        lines += [
            f"{_key(key)} = {_inline(value) if isinstance(value, dict) else _value(value)}"
            for key, value in _without_nothing(run).items()
        ]
    if points:
        lines += ["", "[measured]"]
        for kind, rows in points.items():
            lines += [f"{_key(kind)} = [", *(f"  {_inline(row)}," for row in rows), "]"]
    return "\n".join(lines) + "\n"


def _without_nothing(data: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in data.items() if value is not None and value not in ({}, "")}


def _table(lines: list[str], path: tuple[str, ...], data: dict[str, Any]) -> None:
    plain = {key: value for key, value in data.items() if not isinstance(value, dict)}
    if path and plain:
        lines += ["", f"[{'.'.join(map(_key, path))}]"]
    lines += [f"{_key(key)} = {_value(value)}" for key, value in plain.items()]
    for key, value in data.items():
        if isinstance(value, dict) and value:
            _table(lines, (*path, key), _without_nothing(value))


def _key(name: str) -> str:
    return name if name.replace("_", "").replace("-", "").isalnum() and name.isascii() else _value(name)


def _inline(row: dict[str, Any]) -> str:
    return "{ " + ", ".join(f"{_key(key)} = {_value(value)}" for key, value in row.items()) + " }"


def _value(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return repr(float(f"{value:.{DIGITS}g}"))
    if isinstance(value, int):
        return str(value)
    return json.dumps("".join(c for c in str(value) if c.isprintable()), ensure_ascii=False)
