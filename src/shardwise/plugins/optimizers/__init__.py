"""Optimizers, one file each: what they keep, compute and send for each tensor, and how they run.

A file's name is the optimizer's, with '_' for '-': adamw_8bit.py is adamw-8bit.
"""

from functools import cache

from shardwise.plugins.optimizers._contract import (
    EXCHANGES,
    KINDS,
    Elements,
    Exchange,
    Recipe,
    RunSettings,
    TensorKind,
    TensorPieces,
    TokenSaving,
    UpdateFactoring,
    UpdateGemm,
    UpdateRule,
    moved_besides_state,
)
from shardwise.registry import closest, plugin_in, plugin_names

__all__ = [
    "EXCHANGES",
    "KINDS",
    "USUAL",
    "Elements",
    "Exchange",
    "Recipe",
    "RunSettings",
    "TensorKind",
    "TensorPieces",
    "TokenSaving",
    "UpdateFactoring",
    "UpdateGemm",
    "UpdateRule",
    "moved_besides_state",
    "optimizer_names",
    "read_from",
    "spelled_for",
    "spelling_in",
    "update_rule",
]

_PACKAGE = "shardwise.plugins.optimizers"
USUAL = "adamw"


@cache
def optimizer_names() -> tuple[str, ...]:
    """All of them, the usual one first. No file is read for that."""
    names = sorted(file.replace("_", "-") for file in plugin_names(_PACKAGE))
    return (USUAL, *(name for name in names if name != USUAL))


@cache
def update_rule(name: str) -> UpdateRule:
    found = plugin_in(_PACKAGE, "OPTIMIZER", UpdateRule, name.replace("-", "_"))
    if found is None or name not in optimizer_names():
        raise ValueError(f"optimizer: {name!r} is unknown; {closest(name, list(optimizer_names()))}")
    if found.name != name:
        raise TypeError(f"optimizers/{name.replace('-', '_')}.py: its optimizer is called {found.name!r}, not {name!r}")
    return found


@cache
def spelled_for(program: str) -> dict[str, str]:
    """Name -> how a training program's settings spell it, of the optimizers that the program has."""
    rules = map(update_rule, optimizer_names())
    return {rule.name: rule.spelled[program].split()[0] for rule in rules if program in rule.spelled}


def spelling_in(program: str, job_optimizer: str) -> str:
    known = spelled_for(program)
    if job_optimizer not in known:
        raise ValueError(f"optimizer: {program} has no {job_optimizer}; write {' or '.join(known)}")
    return known[job_optimizer]


def read_from(program: str, text: str) -> str:
    """The optimizer that a program's settings call so, in any case of letters; empty: none."""
    for name in spelled_for(program):
        if text.lower() in update_rule(name).spelled[program].lower().split():
            return name
    return ""
