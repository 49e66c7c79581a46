"""The verdict on one item, and what an item is."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from msgspec import Struct

from shardwise.run.preflight.node import Node
from shardwise.run.preflight.planned import PlannedJob

PASS, WARN, FAIL, UNKNOWN = "pass", "warn", "fail", "not available"
WORST = (FAIL, WARN, UNKNOWN, PASS)
"""of several hosts the first of these counts: what nobody looked at hides no pass of others, and is none"""


class Finding(Struct, frozen=True):
    verdict: str
    evidence: str
    cure: str = ""


def passed(evidence: str) -> Finding:
    return Finding(PASS, evidence)


def warned(evidence: str, cure: str) -> Finding:
    return Finding(WARN, evidence, cure)


def failed(evidence: str, cure: str) -> Finding:
    return Finding(FAIL, evidence, cure)


def unknown(evidence: str, cure: str = "") -> Finding:
    return Finding(UNKNOWN, evidence, cure)


@dataclass(frozen=True)
class Probe:
    name: str
    asks: str
    reads: str
    """command or file"""
    look: Callable[[Node, PlannedJob | None], Finding] | None = None
    """at one node"""
    across: Callable[[Sequence[Node], PlannedJob | None], Finding] | None = None
    """at all nodes together"""
    needs: str = ""
    """plan, measure, nodes or trial: without it the item is not available"""


@dataclass(frozen=True)
class Subject:
    title: str
    order: int
    items: tuple[Probe, ...]


def few(names: Sequence[object], most: int = 4) -> str:
    """The first of them, and how many more there are."""
    shown = ", ".join(map(str, names[:most]))
    return shown + (f" and {len(names) - most} more" if len(names) > most else "")
