"""Which policies the user allows: 'tp=8', 'pp<=8', 'recompute!=full', joined by commas."""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from shardwise.arrays import Flags
from shardwise.fields import state_once
from shardwise.registry import closest
from shardwise.spec.policy import Policies, Policy, choices

SHORT = {"micro": "micro_batch"}
NO_CHOICE = ("recompute_modules", "offload_share")
"""fields that a plan takes as stated"""
SWITCH = {"on": 1, "true": 1, "yes": 1, "1": 1, "off": 0, "false": 0, "no": 0, "0": 0}
COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "<=": np.less_equal, ">=": np.greater_equal, "!=": np.not_equal, "<": np.less, ">": np.greater, "=": np.equal,
}  # fmt: skip
_ITEM = re.compile(r"^\s*([A-Za-z_]+)\s*(<=|>=|!=|<|>|=)\s*([\w-]+)\s*$")
_FORM = "write for example 'tp=8', 'pp<=8' or 'recompute=full'"


@dataclass(frozen=True)
class Constraint:
    field: str
    """a column of Policies"""
    compare: str
    value: int
    """choices as their index, switches as 0 or 1"""
    text: str

    def accepts(self, value: int) -> bool:
        return bool(COMPARE[self.compare](value, self.value))

    def holds(self, policies: Policies) -> Flags:
        return np.asarray(COMPARE[self.compare](getattr(policies, self.field), self.value))


def constraints_of(texts: Iterable[str]) -> tuple[Constraint, ...]:
    """Every 'field compare value' of the texts; each text may hold several, joined by commas."""
    found = tuple(_constraint(item) for text in texts for item in text.split(","))
    stated: dict[str, str] = {}
    for each in found:
        if each.compare == "=":
            state_once(stated, each.field, each.text.partition("=")[2], "policy")
    return found


def allowed(policies: Policies, constraints: Iterable[Constraint]) -> Flags:
    ok = np.ones(len(policies), dtype=np.bool_)
    for constraint in constraints:
        ok &= constraint.holds(policies)
    return ok


def words_of(constraints: Iterable[Constraint]) -> str:
    return ", ".join(constraint.text for constraint in constraints)


def _constraint(item: str) -> Constraint:
    match = _ITEM.match(item)
    if not match:
        raise ValueError(f"policy: cannot read {item!r}; {_FORM}")
    name, compare, word = match[1].lower(), match[2], match[3].lower()
    field, known = SHORT.get(name, name), [f.name for f in fields(Policies) if f.name not in NO_CHOICE]
    if field not in known:
        raise ValueError(f"policy: {name!r} is not a field; {closest(name, [*SHORT, *known])}")
    value = _value(field, word)
    if (field in choices() or isinstance(getattr(Policy(), field), bool)) and compare not in ("=", "!="):
        raise ValueError(f"policy: {item.strip()!r} has no order; write '{name}={word}' or '{name}!={word}'")
    return Constraint(field, compare, value, f"{name}{compare}{word}")


def _value(field: str, word: str) -> int:
    if field in choices():
        if word not in choices()[field]:
            raise ValueError(f"policy: {field} is {word!r}; {closest(word, list(choices()[field]))}")
        return choices()[field].index(word)
    if isinstance(getattr(Policy(), field), bool):
        if word not in SWITCH:
            raise ValueError(f"policy: {field} is {word!r}; write on or off")
        return SWITCH[word]
    if not re.fullmatch(r"-?\d{1,9}", word):
        raise ValueError(f"policy: {field} is {word!r}; write a whole number such as {field}=8")
    return int(word)
