"""A strategy from text: 'mem_sgd,compressor=top_k,compressor.ratio=0.01'. Numbers, lists of them, graphs, compressors
and other strategies by name."""

from typing import Any

from shardwise.fields import state_once
from shardwise.plugins.compressors import compressor, compressors
from shardwise.plugins.sync import strategies, strategy
from shardwise.plugins.sync._strategy import Strategy
from shardwise.plugins.topologies import topology
from shardwise.registry import closest


def strategy_named(text: str) -> Strategy:
    """One strategy with its settings, as one text."""
    found = texts_of(text)
    if len(found) != 1:
        raise ValueError(f"sync: {text!r} names {len(found)} strategies; write one, such as dsgd,topology=ring")
    name, *settings = _items(found[0])
    return strategy_from(name, settings)


def texts_of(text: str) -> list[str]:
    """Several strategies in one text, apart: what has '=' in it belongs to the name before."""
    found: list[list[str]] = []
    for item in _items(text):
        if "=" in item and found:
            found[-1].append(item)
        elif "=" in item:
            raise ValueError(f"sync: {text!r} begins with a setting; write the strategy first: local_sgd,{item}")
        else:
            found.append([item])
    if not found:
        raise ValueError("sync: no strategy named; `shardwise sync list` has the names")
    return [",".join(items) for items in found]


def _items(text: str) -> list[str]:
    """By commas, but for those between the numbers of a list: periods=20,1,1."""
    found: list[str] = []
    for item in filter(None, map(str.strip, text.split(","))):
        if item.lstrip("-").isdigit() and found:
            found[-1] += f",{item}"
        else:
            found.append(item)
    return found


def strategy_from(name: str, settings: list[str]) -> Strategy:
    """compressor.ratio=0.01 sets a compressor's; outer.every=100 an outer strategy's."""
    if name not in strategies():
        raise ValueError(f"strategy: {name!r} is unknown; {closest(name, list(strategies()))}")
    own: dict[str, str] = {}
    parts: dict[str, list[str]] = {}
    for text in settings:
        key, sign, value = text.partition("=")
        if not sign or not key or not value:
            raise ValueError(f"set: {text!r}; write name=value, such as every=16 or compressor=top_k")
        head, dot, rest = key.partition(".")
        if dot:
            parts.setdefault(head, []).append(f"{rest}={value}")
        else:
            state_once(own, key, value, name)
    made = strategies()[name]()
    for head in parts:
        own.setdefault(head, getattr(getattr(made, head, None), "name", ""))
    known = {key: _value(key, value, getattr(made, key, None), parts.get(key, [])) for key, value in own.items()}
    return strategy(name, **known)


def _value(key: str, text: str, default: Any, parts: list[str]) -> Any:
    """Of the kind the default has."""
    if key in ("inner", "outer"):
        return strategy_from(text, parts)
    if key == "compressor":
        made = compressors().get(text)
        numbers: dict[str, Any] = {}
        for part in parts:
            name, _, value = part.partition("=")
            state_once(numbers, name, _number(name, value, getattr(made() if made else None, name, 0.0)), text)
        return compressor(text, **numbers)
    if parts:
        raise ValueError(f"set: {key} has no settings of its own; write {key}=value")
    if key == "topology":
        return topology(text)
    if isinstance(default, tuple):
        return tuple(int(_number(key, word, 0)) for word in text.split(","))
    if isinstance(default, str):
        return text
    return _number(key, text, default)


def _number(key: str, text: str, default: Any) -> Any:
    if isinstance(default, bool):
        if text not in ("true", "false"):
            raise ValueError(f"{key}: {text!r}; write true or false")
        return text == "true"
    try:
        return int(text) if isinstance(default, int) else float(text)
    except ValueError:
        kind = "a whole number" if isinstance(default, int) else "a number"
        raise ValueError(f"{key}: {text!r} is not {kind}") from None
