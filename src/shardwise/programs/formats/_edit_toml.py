"""Settings of a TOML file replaced, added and taken out by their place in the text: all else stays as it is."""

import re
from dataclasses import dataclass
from typing import Any

from shardwise.programs.formats._toml import toml_word

_SECTION = re.compile(r"\s*\[\s*([\w.-]+)\s*\]\s*(#.*)?")
_PAIR = re.compile(r"(\s*)([\w.-]+)\s*=\s*")


@dataclass(frozen=True)
class _Place:
    line: int
    """where the setting begins"""
    start: int
    end: int
    """of its value"""


def replaced(text: str, _kind: str, name: str, value: Any) -> str | None:
    """None where the setting is not there; `value` None takes it out."""
    found = _places(text)[0].get(name)
    if found is None:
        return None
    if value is None:
        end = text.find("\n", found.end)
        return text[: found.line] + (text[end + 1 :] if end >= 0 else "")
    return text[: found.start] + toml_word(value) + text[found.end :]


def added(text: str, _kind: str, name: str, value: Any) -> str:
    section, _, key = name.rpartition(".")
    line = f"{key} = {toml_word(value)}\n"
    ends = _places(text)[1]
    if section not in ends:
        return f"{text.rstrip()}\n\n[{section}]\n{line}"
    place = ends[section]
    return text[:place] + ("" if text[:place].endswith("\n") or not place else "\n") + line + text[place:]


def _places(text: str) -> tuple[dict[str, _Place], dict[str, int]]:
    """Where each setting stands, and where the last line of each section ends."""
    found: dict[str, _Place] = {}
    ends, section, at = {"": 0}, "", 0
    while at < len(text):
        stop = text.find("\n", at)
        stop = len(text) if stop < 0 else stop
        line = text[at:stop]
        if head := _SECTION.fullmatch(line):
            section = head[1]
            ends[section] = stop + 1
        elif pair := _PAIR.match(line):
            end = _value_end(text, at + pair.end())
            found[f"{section}.{pair[2]}".lstrip(".")] = _Place(at, at + pair.end(), end)
            stop = text.find("\n", end)
            stop = len(text) if stop < 0 else stop
            ends[section] = stop + 1
        at = stop + 1
    return found, {name: min(end, len(text)) for name, end in ends.items()}


def _value_end(text: str, at: int) -> int:
    """The end of a value: of its line but for a comment, or of the brackets that it opens."""
    depth, quote, last = 0, "", at
    while at < len(text):
        character = text[at]
        if quote:
            if character == "\\" and quote == '"':
                at += 1
            elif character == quote:
                quote = ""
        elif character in "\"'":
            quote = character
        elif character in "[{":
            depth += 1
        elif character in "]}":
            depth -= 1
        elif character == "#" or (character == "\n" and not depth):
            if not depth:
                break
            at = text.find("\n", at) if character == "#" else at
            if at < 0:
                break
        if not character.isspace():
            last = at + 1
        at += 1
    return last
