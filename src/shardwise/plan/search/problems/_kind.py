"""What a kind of problem states about itself, so that one folder is all there is to add: what it asks of a user, how it
is built, how a point of it is told, and small ones that every method is tried on."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from msgspec import Struct

from shardwise.arrays import Ints
from shardwise.plan.search.problems._contract import Problem
from shardwise.spec.cluster import Cluster
from shardwise.spec.policy import Policy
from shardwise.spec.rules import verdict_of
from shardwise.work.case import Case

MOST_NUMBER = 100_000
FLAGS = {field: f"--{field}" for field in ("tp", "pp", "dp", "cp", "ep", "vpp", "etp", "zero", "schedule")} | {
    "micro_batch": "--micro", "shard_group": "--shard-group",
}  # fmt: skip
"""what a cure may change, as a user writes it"""


@dataclass(frozen=True)
class SearchInput:
    """What every search starts from."""

    case: Case
    policy: Policy
    on_cluster: Callable[[Cluster], Case]
    """the same training on other GPUs"""
    dp_given: bool = True
    """dp is the user's own, not what the other degrees leave of the GPUs"""

    def check_legal(self) -> None:
        verdict = verdict_of(self.case.model, self.case.cluster, self.case.job, self.policy)
        if verdict.legal:
            return
        cure = [
            f"{flag} {getattr(verdict.cure, field)}"
            for field, flag in FLAGS.items()
            if verdict.cure is not None and getattr(verdict.cure, field) != getattr(self.policy, field)
        ]
        raise ValueError(f"{verdict.rule}: {verdict.why}; write {' '.join(cure) or 'other degrees'}")


@dataclass(frozen=True)
class PointTable:
    heads: Sequence[str]
    rows: Sequence[Sequence[str | int | float | None]]
    words: int
    """columns that hold words: they stand on the left"""


@dataclass(frozen=True)
class SearchSpace:
    """One problem with the words, tables and JSON that belong to it."""

    problem: Problem
    title: str
    objective: str
    """what a point is priced by"""
    default: str
    """what one has without a search"""
    clusters: str
    notes: Sequence[str]
    facts: dict[str, Any]
    """JSON about the problem"""
    table: Callable[[Ints], PointTable]
    best: Callable[[Ints], dict[str, Any]]
    """JSON about a point"""
    price_key: str = "objective_s"


class ProblemKind(Struct, frozen=True, kw_only=True):
    name: str
    summary: str
    options: type
    """a dataclass of its own settings, each annotated with what it means: they are flags of `shardwise search`"""
    methods: tuple[str, ...]
    """the first of these that works on a problem is taken unless another is asked for"""
    space: Callable[[SearchInput, Any], SearchSpace]
    examples: Callable[[], dict[str, Problem]]
    """small problems by name: few enough points to enumerate"""


def numbers_of(text: str, name: str) -> list[int]:
    words = [word.strip() for word in text.split(",")]
    if not all(word.isascii() and word.isdigit() and 0 < len(word) < 8 and int(word) > 0 for word in words):
        raise ValueError(f"{name}: {text[:40]!r} is not a list of whole numbers above 0; write for example 2,4,8")
    return [int(word) for word in words]


def ranges_of(text: str | None, name: str) -> list[int]:
    found: list[int] = []
    for word in text.split(",") if text is not None else []:
        ends = [end.strip() for end in word.split("-")]
        if len(ends) > 2 or not all(end.isascii() and end.isdigit() and len(end) < 7 for end in ends):
            raise ValueError(f"{name}: {word[:40]!r} is not a node or range of nodes; write for example 0-15,40-63")
        first, last = int(ends[0]), int(ends[-1])
        if not first <= last < MOST_NUMBER:
            raise ValueError(f"{name}: {word[:40]!r} goes backwards or is past {MOST_NUMBER:,}; write 0-15")
        found += range(first, last + 1)
    return list(dict.fromkeys(found))
