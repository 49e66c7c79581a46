"""Configurations as YAML and JSON."""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
import yaml


def yaml_text(data: Mapping[str, Any], comments: Iterable[str] = ()) -> str:
    head = "".join(f"# {line}\n" for line in comments)
    return head + str(yaml.safe_dump(dict(data), sort_keys=False, default_flow_style=None, width=110))


def json_text(data: Mapping[str, Any]) -> str:
    return msgspec.json.format(msgspec.json.encode(data), indent=2).decode() + "\n"
