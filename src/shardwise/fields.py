"""Reads users' files, configurations and documents strictly, with errors in one form.

Every field is checked for type and range when it is read; a field nobody asks for is refused where the reader says it
is `done`. An error is one line: where, the field, its value, what to write. `null` counts as absent. Values may be
typed (TOML, JSON) or all text (YAML).
"""

import io
import math
import os
import select
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, ClassVar, Self, TypeVar

import msgspec

from shardwise.registry import closest
from shardwise.screen import without_shapes

SILENCE_S = 10.0
"""that a pipe is waited for"""
READ_BYTES = 1 << 20
LONGEST_TEXT = 1000
LONGEST_LIST = 4096
_OFFERED: dict[str, bytes] = {}
_FLAGS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
_T = TypeVar("_T")


def short(value: object) -> str:
    text = without_shapes(repr(value))
    return text if len(text) <= 60 else text[:57] + "..."


def state_once(found: dict[str, _T], name: str, value: _T, where: str) -> None:
    """Takes one `name=value` of a list of them; a repeated name is refused with both values."""
    if name in found:
        raise ValueError(f"{where}: {name} is {short(found[name])} and {short(value)}; write it once")
    found[name] = value


def mapping_of(value: object, where: str, wanted: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ValueError(f"{where}: {short(value)} is not a mapping; write {wanted}")
    return value


def list_of(value: object, where: str, wanted: str) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError(f"{where}: {short(value)} is not a list; write {wanted}")
    return value


@contextmanager
def offered(contents: Mapping[str, bytes]) -> Iterator[None]:
    """Meanwhile these files are there, under the names a command line has for them: a server that writes nothing hands
    over what it was sent."""
    _OFFERED.update(contents)
    try:
        yield
    finally:
        for name in contents:
            _OFFERED.pop(name, None)


def offered_file(name: str) -> bytes | None:
    return _OFFERED.get(name)


def is_there(path: Path) -> bool:
    """A file, on the disk or offered."""
    return str(path) in _OFFERED or path.is_file()


def opened(path: Path) -> BinaryIO:
    found = _OFFERED.get(str(path))
    return path.open("rb") if found is None else io.BytesIO(found)


def read_file(path: Path, field: str, most: int, wanted: str, *, pipes: bool = False) -> bytes:
    """The whole content of a user's file. `field`: what the user names it by; devices and pipes, which may never end,
    only where they are asked for."""
    try:
        if not pipes and not is_there(path):
            raise ValueError(f"{field}: there is no file {str(path)!r}; write {wanted}")
        raw = _content(path, most)
    except _TooLargeError:
        raise ValueError(f"{field}: {path.name!r} is larger than {most / 2**20:g} MiB; write {wanted}") from None
    except TimeoutError:
        raise ValueError(f"{field}: nothing came from {str(path)!r} for {SILENCE_S:g} s; write {wanted}") from None
    except OSError as error:
        raise ValueError(f"{field}: {str(path)!r} cannot be read ({error.strerror}); write {wanted}") from None
    except ValueError as error:
        if "null byte" not in str(error):
            raise
        raise ValueError(f"{field}: {str(path)!r} is not a path; write {wanted}") from None
    return raw


class _TooLargeError(Exception):
    """Not an OSError: nothing is wrong with the file."""


def _content(path: Path, most: int) -> bytes:
    """Never waits for long: a pipe may have nobody who writes."""
    if (held := _OFFERED.get(str(path))) is not None:
        if len(held) > most:
            raise _TooLargeError
        return held
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        about = os.fstat(descriptor)
        waits = not stat.S_ISREG(about.st_mode)
        if not waits and about.st_size > most:
            raise _TooLargeError
        ready = select.poll()
        ready.register(descriptor, select.POLLIN)
        found = bytearray()
        while len(found) <= most:
            if waits and not ready.poll(SILENCE_S * 1000):
                raise TimeoutError
            part = os.read(descriptor, READ_BYTES)
            if not part:
                return bytes(found)
            found += part
        raise _TooLargeError
    finally:
        os.close(descriptor)


class Fields:
    """One mapping, read field by field."""

    numbers_as_text: ClassVar[bool] = True
    """'64' is a number and 'yes' a flag, as YAML is read here"""
    most_whole: ClassVar[int] = 100_000_000
    """of a whole number whose reader states no bound"""

    def __init__(self, data: Mapping[str, Any], where: str, path: str = "") -> None:
        self._data = data
        self._where = where
        self._path = path
        """of a section inside the file: 'rope_scaling.'"""
        self._read: dict[str, None] = {}

    def at(self, name: str) -> str:
        return f"{self._where}: {self._path}{name}"

    def has(self, name: str) -> bool:
        self._read[name] = None
        return self._data.get(name) is not None

    def refuse(self, name: str, wanted: str) -> ValueError:
        """An error about a field that is there, but is no good or does not suit the others."""
        return ValueError(f"{self.at(name)} is {short(self._data.get(name))}; write {wanted}")

    def value(self, name: str, wanted: str) -> Any:
        if not self.has(name):
            raise ValueError(f"{self.at(name)} is missing; write {wanted}")
        return self._data[name]

    def text(
        self, name: str, *, default: str | None = None, example: str = "", choices: Sequence[str] = (),
        longest: int = LONGEST_TEXT,
    ) -> str:  # fmt: skip
        """One line; without a default it must be there and not be empty."""
        if default is not None and not self.has(name):
            return default
        wanted = f"one of {', '.join(choices)}" if choices else "a text" + _such_as(name, example)
        value = self.value(name, wanted)
        line = " ".join(value.split()) if isinstance(value, str) else ""
        if not isinstance(value, str) or (default is None and not line):
            raise self.refuse(name, wanted)
        if not line.isprintable() or len(line) > longest:
            raise self.refuse(name, f"at most {longest} printable characters")
        if choices and line not in choices:
            raise ValueError(f"{self.at(name)} is {short(line)}; {closest(line[:60], list(choices))}")
        return line

    def quantity(self, name: str, parse: Callable[[str, str], float], example: str) -> float:
        """A number with its unit."""
        value = self.value(name, f"for example '{name}: {example}'")
        if not isinstance(value, str | int | float) or isinstance(value, bool):
            raise self.refuse(name, f"a number with a unit, such as '{example}'")
        return parse(str(value), self.at(name))

    def whole(
        self, *names: str, default: int | None = None, least: int = 1, most: int | None = None, example: str = ""
    ) -> int:
        """A whole number under the first of these names that is there; without a default it must be there."""
        name = next((n for n in names if self.has(n)), names[0])
        if default is not None and not self.has(name):
            return default
        most = self.most_whole if most is None else most
        wanted = f"a whole number from {least} to {most}" + _such_as(name, example)
        value = self.value(name, wanted)
        if self.numbers_as_text and isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 20:
            value = int(value)
        if not _is_whole(value, least, most):
            raise self.refuse(name, wanted)
        return int(value)

    def number(
        self, name: str, default: float | None = None, *, least: float = 0.0, most: float = 1e18, example: str = ""
    ) -> float:
        if default is not None and not self.has(name):
            return default
        wanted = f"a number from {least:g} to {most:g}" + _such_as(name, example)
        value = self.value(name, wanted)
        if self.numbers_as_text and isinstance(value, str):
            try:
                value = float(value)
            except ValueError:
                value = math.nan
        if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
            raise self.refuse(name, wanted)
        return float(value)

    def flag(self, name: str, default: bool = False) -> bool:
        if not self.has(name):
            return default
        value = self._data[name]
        found = _FLAGS.get(value.lower()) if self.numbers_as_text and isinstance(value, str) else value
        if not isinstance(found, bool):
            raise self.refuse(name, "true or false")
        return found

    def texts(
        self, name: str, *, default: Sequence[str] | None = (), choices: Sequence[str] = (), least: int = 0,
        most: int = LONGEST_LIST,
    ) -> tuple[str, ...]:  # fmt: skip
        """A list of words."""
        count = f"{least}" if least == most else f"{least} to {most}"
        wanted = f"a list of {count} words" + (f" out of {', '.join(choices)}" if choices else "")
        return tuple(self._list(name, default, wanted, least, most, lambda v: _is_word(v, choices)))

    def wholes(
        self, name: str, *, default: Sequence[int] | None = None, least: int = 1, most: int | None = None
    ) -> tuple[int, ...]:
        most = self.most_whole if most is None else most
        wanted = f"a list of at most {LONGEST_LIST} whole numbers from {least} to {most}"
        return tuple(map(int, self._list(name, default, wanted, 0, LONGEST_LIST, self._counts(least, most))))

    def _counts(self, least: int, most: int) -> Callable[[object], bool]:
        def fits(value: object) -> bool:
            digits = isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 20
            return _is_whole(int(str(value)) if self.numbers_as_text and digits else value, least, most)

        return fits

    def _list(
        self, name: str, default: Sequence[Any] | None, wanted: str, least: int, most: int,
        fits: Callable[[object], bool],
    ) -> Sequence[Any]:  # fmt: skip
        if default is not None and not self.has(name):
            return default
        value = self.value(name, wanted)
        if not isinstance(value, list) or not least <= len(value) <= most or not all(map(fits, value)):
            raise self.refuse(name, wanted)
        return value

    def section(self, name: str, wanted: str = "") -> Self:
        """The fields under a field. An absent one is empty, so that its fields take their defaults or are missing -
        but where the error would not say what to write, `wanted` makes it needed."""
        value = self.value(name, wanted) if wanted or self.has(name) else {}
        found = mapping_of(value, self.at(name), wanted or "fields under it")
        return type(self)(found, self._where, f"{self._path}{name}.")

    def sections(self, name: str, wanted: str, *, least: int = 1, most: int = LONGEST_LIST) -> list[Self]:
        """A list of such."""
        rows = list_of(self.value(name, wanted), self.at(name), wanted)
        if not least <= len(rows) <= most:
            raise ValueError(f"{self.at(name)} has {len(rows)} entries; write {least} to {most}, {wanted}")
        each = [(f"{self._path}{name}[{number}]", row) for number, row in enumerate(rows)]
        return [
            type(self)(mapping_of(row, f"{self._where}: {path}", wanted), self._where, f"{path}.") for path, row in each
        ]

    def done(self) -> None:
        for name in self._data:
            if name not in self._read:
                raise ValueError(f"{self.at(_plain(name))} is unknown; {closest(str(name)[:60], list(self._read))}")


def converted(data: object, kind: type[_T], where: str, wanted: str) -> _T:
    """A struct from plain data; what does not suit it is named with its value, a mistyped field with the nearest."""
    try:
        return msgspec.convert(data, kind)
    except msgspec.ValidationError as error:
        what, _, at = str(error).partition(" - at `$")
        path = at.rstrip("`").lstrip(".")
        if "unknown field `" in what:
            name = what.partition("unknown field `")[2].rstrip("`")
            field = f"{path}.{_plain(name)}".lstrip(".")
            raise ValueError(f"{where}: {field} is unknown; {closest(name[:60], _names(kind))}") from None
        if "missing required field `" in what:
            field = f"{path}.{what.partition('missing required field `')[2]}".strip(".`")
            raise ValueError(f"{where}: {field} is missing; write {wanted}") from None
        raise ValueError(f"{where}: {path or 'it'}{_found(data, path)}: {what}; write {wanted}") from None


def _names(kind: type) -> list[str]:
    """The fields of a struct and of those inside it."""
    found: dict[str, None] = {}

    def look(node: object) -> None:
        if isinstance(node, msgspec.inspect.StructType):
            for field in node.fields:
                found[field.name] = None
                look(field.type)
        for inside in ("types", "item_types"):
            for each in getattr(node, inside, ()):
                look(each)
        for inside in ("item_type", "value_type"):
            if hasattr(node, inside):
                look(getattr(node, inside))

    look(msgspec.inspect.type_info(kind))
    return list(found)


def _found(data: object, path: str) -> str:
    """' is ...' for a value found by its dotted path."""
    for key in path.split(".") if path else ():
        if not isinstance(data, dict) or key not in data:
            return ""
        data = data[key]
    return "" if isinstance(data, dict | list) else f" is {short(data)}"


def _plain(name: object) -> str:
    """The name of a field as it is written, unless it would spoil the line."""
    return name if isinstance(name, str) and name.isprintable() and 0 < len(name) <= 60 else short(name)


def _such_as(name: str, example: str) -> str:
    return f", such as '{name}: {example}'" if example else ""


def _is_whole(value: object, least: int, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def _is_word(value: object, choices: Sequence[str]) -> bool:
    return isinstance(value, str) and (not choices or value in choices)
