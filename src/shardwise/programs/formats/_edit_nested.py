"""Settings of a YAML or JSON file replaced, added and taken out by their place in the text: all else stays as it is."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import yaml

from shardwise.programs.formats._source import plain_name
from shardwise.spec.plain_yaml import composed

_PLAIN = re.compile(r"[\w.+/-]+")
"""what the reader, who takes every value as text, gave back: written as it stood"""
STEP = 2
"""columns that a new mapping is indented by"""


@dataclass(frozen=True)
class _Entry:
    name: str
    """whole, as the reader knows it"""
    key: yaml.Node
    value: yaml.Node
    inside: yaml.MappingNode


def replaced(text: str, kind: str, name: str, value: Any) -> str | None:
    """None where the setting is not there; `value` None takes it out."""
    found = [entry for entry in _entries(_root(text, kind)) if entry.name == name]
    if not found:
        return None
    entry = found[-1]
    start, end = _span(text, entry.value)
    if value is None and not entry.inside.flow_style and _line(text, entry.key.start_mark.index).strip() == "":
        return text[: _line_start(text, entry.key.start_mark.index)] + text[_line_end(text, end) + 1 :]
    gap = " " if text[start - 1 : start] == ":" else ""
    return text[:start] + gap + _word(value, kind) + text[end:]


def added(text: str, kind: str, name: str, value: Any) -> str:
    """The setting in the mapping that its name asks for, which is made where it is missing."""
    root = _root(text, kind)
    flags = [entry.inside for entry in _entries(root) if _key(entry.key).startswith("--")]
    if flags and "." not in name:
        return _appended(text, kind, flags[-1], ["--" + name.replace("_", "-")], value)
    parts, mapping = name.split("."), root
    while len(parts) > 1:
        inner = next((v for k, v in mapping.value if _key(k) == parts[0] and isinstance(v, yaml.MappingNode)), None)
        if inner is None:
            break
        parts, mapping = parts[1:], inner
    return _appended(text, kind, mapping, parts, value)


def _appended(text: str, kind: str, mapping: yaml.MappingNode, parts: list[str], value: Any) -> str:
    if mapping.flow_style or kind == "json":
        place = _last(mapping)
        inner = _word(value, kind)
        for part in reversed(parts[1:]):
            inner = "{" + f"{_quoted(part, kind)}: {inner}" + "}"
        pair = f"{_quoted(parts[0], kind)}: {inner}"
        if place is None:
            start = text.index("{", mapping.start_mark.index) + 1
            return text[:start] + pair + text[start:]
        first = mapping.value[0][0].start_mark
        own_line = _line(text, first.index).strip() == ""
        return text[:place] + (",\n" + " " * first.column if own_line else ", ") + pair + text[place:]
    column = mapping.value[0][0].start_mark.column
    lines = [" " * (column + STEP * depth) + part + ":" for depth, part in enumerate(parts)]
    lines[-1] += " " + _word(value, kind)
    place = _line_end(text, _last(mapping) or mapping.end_mark.index)
    return text[:place] + "\n" + "\n".join(lines) + text[place:]


def _root(text: str, kind: str) -> yaml.MappingNode:
    # JSON is YAML but for tabs, which stand for one blank each
    node = composed(text.replace("\t", " ") if kind == "json" else text, "file")
    if not isinstance(node, yaml.MappingNode):
        raise ValueError("file: has no settings")
    return node


def _entries(mapping: yaml.MappingNode, prefix: str = "") -> Iterator[_Entry]:
    for key, value in mapping.value:
        whole = prefix + _key(key)
        if isinstance(value, yaml.MappingNode):
            yield from _entries(value, whole + ".")
        else:
            yield _Entry(plain_name(whole), key, value, mapping)


def _key(node: yaml.Node) -> str:
    return str(node.value)


def _span(text: str, node: yaml.Node) -> tuple[int, int]:
    """Where a value stands, without what follows it on later lines."""
    start = node.start_mark.index
    return start, start + len(text[start : node.end_mark.index].rstrip())


def _last(node: yaml.Node) -> int | None:
    """The end of the last value in a mapping; None where it has none."""
    while isinstance(node, yaml.CollectionNode) and not node.flow_style and node.value:
        last = node.value[-1]
        node = last[1] if isinstance(last, tuple) else last
    if isinstance(node, yaml.MappingNode):
        return int(node.value[-1][1].end_mark.index) if node.value else None
    return int(node.end_mark.index)


def _line_start(text: str, place: int) -> int:
    return text.rfind("\n", 0, place) + 1


def _line(text: str, place: int) -> str:
    """What stands on the line before a place."""
    return text[_line_start(text, place) : place]


def _line_end(text: str, place: int) -> int:
    end = text.find("\n", place - (text[place - 1 : place] == "\n"))
    return len(text) if end < 0 else end


def _word(value: Any, kind: str) -> str:
    if kind == "json":
        return json.dumps(list(value) if isinstance(value, tuple) else value)
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_word(item, kind) for item in value) + "]"
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    text = str(value)
    return text if _PLAIN.fullmatch(text) else json.dumps(text)


def _quoted(word: str, kind: str) -> str:
    return json.dumps(word) if kind == "json" else word
