"""Settings of an optimizer and a schedule, in whatever shape a program keeps them, by weight."""

import re
from typing import Any

from shardwise.run.runtime.formats.stored import MASTER, WEIGHT, StoredCheckpoint

Settings = dict[str, Any]
_GROUP = re.compile(r"(?:\w+\.)?(?:optim|optimizer)\.param_groups\.(.+)\.(\w+)")
_SCHEDULES = ("scheduler", "lr_scheduler")
_CARRIED = "param_groups"


def settings_of(checkpoint: StoredCheckpoint) -> dict[str, Settings]:
    """Weight -> learning rate, betas and the rest; empty: it does not say."""
    flat: dict[str, Settings] = {}
    for name, value in checkpoint.values.items():
        if match := _GROUP.fullmatch(name):
            flat.setdefault(match[1], {})[match[2]] = value
    groups = list(flat.values())
    optimizer = checkpoint.values.get("optimizer")
    listed = checkpoint.values.get(f"optimizer.{_CARRIED}") or (
        optimizer.get(_CARRIED) if isinstance(optimizer, dict) else None
    )
    if isinstance(listed, list):
        groups = [dict(one) for one in listed if isinstance(one, dict)]
    weights = list(checkpoint.of_kind(MASTER) or checkpoint.of_kind(WEIGHT))
    if set(flat) & set(weights):
        return flat
    named = {
        name: {key: value for key, value in group.items() if key != "params"}
        for group in groups
        for name in _texts(group.get("params"))
        if name in weights
    }
    if named or len(groups) != 1:
        return named
    return {name: {key: value for key, value in groups[0].items() if key != "params"} for name in weights}


def _texts(node: Any) -> list[str]:
    return [one for one in node if isinstance(one, str)] if isinstance(node, list) else []


def schedule_of(checkpoint: StoredCheckpoint) -> Settings:
    found: Settings = {}
    for name, value in checkpoint.values.items():
        head, _, key = name.partition(".")
        if head in _SCHEDULES and key:
            found[key] = value
        elif head in _SCHEDULES and isinstance(value, dict):
            found |= value
    return found


def grouped(settings: dict[str, Settings]) -> list[tuple[Settings, list[str]]]:
    """Weights of equal settings together, in their order."""
    found: list[tuple[Settings, list[str]]] = []
    for name, one in settings.items():
        same = next((names for known, names in found if known == one), None)
        if same is None:
            found.append((one, [name]))
        else:
            same.append(name)
    return found
