"""Public failures with their labels, and what `doctor` names in each."""

import tomllib
from dataclasses import dataclass
from pathlib import Path

from shardwise.measured.diagnose.failure_lines import failures_of
from shardwise.measured.diagnose.postmortem import diagnose
from shardwise.programs.importers.logs._contract import plain_lines

FOLDER = Path(__file__).parent / "failures"


@dataclass(frozen=True)
class PublicFailure:
    source: str
    kind: str
    log: str
    rank: int | None = None
    also: tuple[str, ...] = ()
    """kinds that a reader would accept as well"""


def corpus(name: str) -> list[PublicFailure]:
    entries = tomllib.loads((FOLDER / f"{name}.toml").read_text(encoding="utf-8"))["failure"]
    return [PublicFailure(**{**entry, "also": tuple(entry.get("also", ()))}) for entry in entries]


def named(failure: PublicFailure) -> tuple[str, int | None]:
    """(kind, rank) of the first cause; kind is empty where nothing is named."""
    lines = plain_lines(failure.log)
    causes = diagnose(None, None, (), (), failures_of(lines, [None] * len(lines))).causes
    return (causes[0].code, causes[0].rank) if causes else ("", None)
