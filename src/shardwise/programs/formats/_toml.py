"""TOML as configurations of training programs need it: sections of numbers, words, switches and lists."""

import json
from collections.abc import Mapping
from typing import Any


def toml_text(sections: Mapping[str, Mapping[str, Any]]) -> str:
    lines: list[str] = []
    for name, values in sections.items():
        lines += [f"[{name}]", *[f"{key} = {toml_word(value)}" for key, value in values.items()], ""]
    return "\n".join(lines)


def toml_word(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(toml_word(item) for item in value) + "]"
    # a JSON string is a TOML basic string
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else str(value)
