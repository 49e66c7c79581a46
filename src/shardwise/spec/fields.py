"""Reads a mapping strictly: every field is named in the error, a key nobody asked for is an error.

Values may be typed (from TOML) or all text (from YAML); both read the same way.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

from shardwise.registry import closest

_FLAGS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
LARGEST_COUNT = 100_000_000
LONGEST_TEXT = 1000


def mapping_of(value: object, where: str, example: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ValueError(f"{where}: {_short(value)} is not a mapping; write {example}")
    return value


def list_of(value: object, where: str, example: str) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError(f"{where}: {_short(value)} is not a list; write {example}")
    return value


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


class Fields:
    """One mapping, read field by field; call `done` at the end to refuse what was not read."""

    def __init__(self, data: Mapping[str, Any], where: str) -> None:
        self._data = data
        self._where = where
        self._read: dict[str, None] = {}

    def at(self, key: str) -> str:
        return f"{self._where}: {key}"

    def has(self, key: str) -> bool:
        self._read[key] = None
        return key in self._data

    def value(self, key: str, example: str) -> Any:
        if not self.has(key):
            raise ValueError(f"{self._where}: {key} is missing; write for example '{key}: {example}'")
        return self._data[key]

    def text(self, key: str, example: str, default: str | None = None) -> str:
        if default is not None and not self.has(key):
            return default
        value = self.value(key, example)
        line = " ".join(value.split()) if isinstance(value, str) else ""
        if not isinstance(value, str) or (default is None and not line):
            raise ValueError(f"{self.at(key)}: {_short(value)} is not text; write for example '{key}: {example}'")
        if not line.isprintable() or len(line) > LONGEST_TEXT:
            raise ValueError(f"{self.at(key)}: {_short(value)} is longer than {LONGEST_TEXT} or not printable text")
        return line

    def quantity(self, key: str, parse: Callable[[str, str], float], example: str) -> float:
        value = self.value(key, example)
        if not isinstance(value, str | int | float) or isinstance(value, bool):
            raise ValueError(f"{self.at(key)}: {_short(value)} is not a quantity; write for example '{example}'")
        return parse(str(value), self.at(key))

    def integer(self, key: str, example: str, default: int | None = None) -> int:
        if default is not None and not self.has(key):
            return default
        value = self.value(key, example)
        if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 20:
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool) or not 0 < value <= LARGEST_COUNT:
            raise ValueError(
                f"{self.at(key)}: {_short(value)} is not a whole number from 1 to {LARGEST_COUNT}; "
                f"write for example '{key}: {example}'"
            )
        return value

    def number(self, key: str, default: float) -> float:
        if not self.has(key):
            return default
        value = self._data[key]
        try:
            number = math.nan if isinstance(value, bool) else float(value)
        except (TypeError, ValueError, OverflowError):
            number = math.nan
        if not math.isfinite(number):
            raise ValueError(f"{self.at(key)}: {_short(value)} is not a number; write for example '{key}: {default:g}'")
        return number

    def flag(self, key: str) -> bool:
        if not self.has(key):
            return False
        value = self._data[key]
        found = value if isinstance(value, bool) else _FLAGS.get(str(value).lower())
        if found is None:
            raise ValueError(f"{self.at(key)}: {_short(value)} is neither yes nor no; write '{key}: true' or false")
        return found

    def integers(self, key: str) -> tuple[int, ...]:
        values = list_of(self._data[key], self.at(key), "a list of whole numbers") if self.has(key) else []
        each = [Fields({key: value}, self._where) for value in values]
        return tuple(one.integer(key, "4") for one in each)

    def texts(self, key: str) -> tuple[str, ...]:
        values = list_of(self._data[key], self.at(key), "a list of names") if self.has(key) else []
        if not all(isinstance(v, str) for v in values):
            raise ValueError(
                f"{self.at(key)}: {_short(values)} holds something that is not text; write a list of names"
            )
        return tuple(values)

    def done(self) -> None:
        for key in self._data:
            if key not in self._read:
                raise ValueError(f"{self._where}: unknown key {_short(key)}; {closest(str(key), list(self._read))}")
