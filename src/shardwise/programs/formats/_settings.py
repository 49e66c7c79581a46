"""Settings of a launch file under dotted names, read one by one, so that what nobody asked for can be listed."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from shardwise.fields import short
from shardwise.programs.formats._shell_words import is_open, open_parts, shown_word
from shardwise.registry import closest
from shardwise.screen import HIDDEN, names_secret, without_secrets

SWITCHES = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}
LARGEST = 1e12
"""as of whole numbers"""
NOTHING = ("", "null", "None", "~")
PATHS = re.compile(r"path|file|dir|model|tokenizer|load|checkpoint|name", re.I)
"""settings whose value may be known only where a script runs: no split depends on a place"""
_ADDS = re.compile(r"ARG|OPT|EXTRA|FLAG|CMD|PARAM|CONFIG", re.I)
_COMMAND = re.compile(r"\$\(.*\)|`[^`]*`", re.DOTALL)
"""a command whose output stands there: its own options are not the program's"""
_ADDED = re.compile(r"(?:^|[\s:])(?:--|\+{0,2}[a-z][\w.]*=)|^\$[@*]$")


class FileSettings:
    """Values may be typed (JSON, TOML) or text (YAML, shell)."""

    def __init__(self, values: Mapping[str, Any], where: str, program: str = "", track: set[str] | None = None) -> None:
        """`program`: what the command starts, where there is one. `track`: names read so far."""
        self._values = {name: value for name, value in values.items() if not _is_nothing(value)}
        self.where, self.program = where, program
        self.track: set[str] = set() if track is None else track

    @property
    def values(self) -> Mapping[str, Any]:
        return self._values

    def has(self, name: str) -> bool:
        return name in self._values

    def names(self) -> tuple[str, ...]:
        return tuple(self._values)

    def first(self, *names: str) -> str:
        """The first of several names that is stated; empty: none."""
        return next((name for name in names if self.has(name)), "")

    def below(self, prefix: str) -> "FileSettings":
        """Those under a name, which count as read; errors keep the whole name."""
        inside = {name[len(prefix) :]: value for name, value in self._values.items() if name.startswith(prefix)}
        self.track |= {prefix + name for name in inside}
        return FileSettings(inside, f"{self.where}: {prefix.rstrip('.')}")

    def whole(self, name: str, default: int = 1, *, least: int = 1) -> int:
        if not self.has(name):
            return default
        value = self._value(name)
        text = str(value).replace("_", "")
        if text == "none":
            return default
        if isinstance(value, bool) or not re.fullmatch(r"-?\d{1,12}(\.0{1,6})?", text) or int(float(text)) < least:
            raise self.refuse(name, f"a whole number of {least} or more")
        return int(float(text))

    def whole_or_none(self, name: str) -> int | None:
        return self.whole(name) if self.has(name) else None

    def number(self, name: str, default: float) -> float:
        if not self.has(name):
            return default
        try:
            found = float(str(self._value(name)))
        except ValueError:
            raise self.refuse(name, "a number") from None
        if not abs(found) < LARGEST:
            raise self.refuse(name, f"a number below {LARGEST:.0e}")
        return found

    def flag(self, name: str, default: bool = False) -> bool:
        if not self.has(name):
            return default
        found = SWITCHES.get(str(self._value(name)).lower())
        if found is None:
            raise self.refuse(name, "true or false")
        return found

    def text(self, name: str, default: str = "") -> str:
        if self.has(name) and PATHS.search(name) and any(map(is_open, _words_of(self._values[name]))):
            self.track.add(name)
            return default
        return str(self._value(name)) if self.has(name) else default

    def choice(self, name: str, known: Mapping[str, Any], default: Any) -> Any:
        """What a word stands for."""
        if not self.has(name):
            return default
        word = str(self._value(name))
        match = next((value for key, value in known.items() if key.lower() == word.lower()), None)
        if match is None:
            raise ValueError(f"{self.where}: {name} is {short(word)}, not understood; {closest(word, list(known))}")
        return match

    def words(self, name: str) -> tuple[str, ...]:
        if not self.has(name):
            return ()
        value = self._value(name)
        items: Sequence[Any] = value if isinstance(value, list | tuple) else re.split(r"[\s,\[\]'\"]+", str(value))
        return tuple(str(item) for item in items if str(item))

    def read(self) -> tuple[str, ...]:
        """What was asked for."""
        return tuple(name for name in self._values if name in self.track)

    def left(self) -> tuple[str, ...]:
        """What was not asked for, with its value unless it may be a secret."""
        return tuple(
            f"{name} {shown(name, value)}".strip()
            for name, value in self._values.items()
            if name not in self.track and not name.startswith("launch.") and value != "auto"
        )

    def unread(self) -> dict[str, Any]:
        return {name: value for name, value in self._values.items()
                if name not in self.track and not name.startswith("launch.")}  # fmt: skip

    def refuse(self, name: str, wanted: str) -> ValueError:
        value = self._values.get(name)
        told = f"is {shown(name, value)}"
        if value is True:
            told = "has no value"
        elif value is None:
            told = "is not stated"
        return ValueError(f"{self.where}: {name} {told}; write {wanted}")

    def _value(self, name: str) -> Any:
        self.track.add(name)
        value = self._values[name]
        if missing := [shown_word(word) for word in _words_of(value) if is_open(word)]:
            raise ValueError(
                f"{self.where}: {name} is {short(' '.join(missing))}, known only where the script runs; give "
                f"the variable (check --set NAME=VALUE), or write the value of {name} in the script"
            )
        return value


def shown(name: str, value: Any) -> str:
    """A value for the screen; what may be a secret is not."""
    text = " ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    if names_secret(name, text):
        return HIDDEN
    return "" if value is True else short(without_secrets(shown_word(text)))


def flattened(data: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested mappings under dotted names; lists stay values."""
    found: dict[str, Any] = {}
    for name, value in data.items():
        if isinstance(value, Mapping):
            found |= flattened(value, f"{prefix}{name}.")
        else:
            found[f"{prefix}{name}"] = value
    return found


def options_of(words: Sequence[str]) -> dict[str, Any]:
    """`--name value ...`, `--name=value` and `name=value` of a command line; dashes in names become underscores."""
    found: dict[str, Any] = {}
    name, values = "", list[str]()

    def keep() -> None:
        if name:
            found[name] = True if not values else values[0] if len(values) == 1 else tuple(values)

    for word in words:
        if re.match(r"--[A-Za-z]", word) or re.match(r"-[A-Za-z]", word):
            keep()
            text, equals, value = word.lstrip("-").partition("=")
            name, values = text.replace("-", "_"), [value] if equals else []
        elif name and not values and names_secret(name, word):
            values.append(word)  # `--credentials me:word` is no command of tyro
        elif subcommand := re.fullmatch(r"([a-z][a-z_-]*):([a-z-]+)", word):
            keep()
            name, values = "", []
            found[subcommand[1].replace("-", "_")] = subcommand[2]
        elif not name and (pair := re.match(r"[+~]{0,2}([\w.@/]+)=(.*)", word, re.DOTALL)):
            found[pair[1]] = pair[2]
        elif name and "=" in word and re.match(r"\+{0,2}[A-Za-z_][\w.]*\.[\w.]+=", word):
            keep()
            name, values = "", []
            key, _, value = word.lstrip("+").partition("=")
            found[key] = value
        elif name and not (is_loose(word) and (values or "--" in _COMMAND.sub("", word))):
            values.append(word)
    keep()
    return found


def is_loose(word: str) -> bool:
    """Whether a word that is not known may stand for options of its own, not for the value of the one before it."""
    text = _COMMAND.sub("", shown_word(word))
    whole = is_open(word) and len(open_parts(word)) == 1 and len(shown_word(word)) == len(open_parts(word)[0])
    return whole and bool(_ADDS.search(text.partition(":")[0]) or _ADDED.search(text))


def _words_of(value: Any) -> list[str]:
    return [word for word in (value if isinstance(value, list | tuple) else [value]) if isinstance(word, str)]


def _is_nothing(value: Any) -> bool:
    return value is None or (isinstance(value, str) and value.strip() in NOTHING)
