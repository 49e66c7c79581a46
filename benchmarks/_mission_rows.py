"""Rows of tests/published/mission.toml: every statement of four source documents, run as a command and compared."""

import contextlib
import io
import json
import shlex
import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from shardwise.show.cli import main

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # the evidence lies beside the package
PAPERS = ["python", "-m", "evidence.papers"]
TABLE = ROOT / "tests" / "published" / "mission.toml"
LENGTH = "length"


class MissionRow(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    id: str
    says: str
    command: str = ""
    text: tuple[str, ...] = ()
    value: tuple[str | float, ...] = ()
    over: tuple[str | float, ...] = ()
    expect: float | None = None
    tolerance: float = 0.005
    """relative; below 0: absolute"""
    above: float | None = None
    slow: bool = False
    missing: str = ""

    def wrong(self, said: "Said") -> str:
        """Why the answer is not the one expected; nothing where it is."""
        if not said.out:
            return said.err.strip()[-200:] or f"exit {said.code}"
        if self.text:
            lacks = [word for word in self.text if word not in said.out]
            return f"lacks {lacks}" if lacks else ""
        try:
            found = _product(self.value, said.answer) / _product(self.over, said.answer)
        except (KeyError, IndexError, ValueError, TypeError) as error:
            return f"{type(error).__name__}: {error}"
        if self.above is not None:
            return "" if found > self.above else f"{found} is not above {self.above}"
        expect = self.expect or 0.0
        room = -self.tolerance if self.tolerance < 0 else self.tolerance * abs(expect)
        return "" if abs(found - expect) <= room + 1e-12 else f"{found:.6g} where {expect:.6g} is expected"


class Said(Struct, frozen=True):
    code: int
    out: str
    """JSON without blanks between its parts"""
    err: str
    answer: Any


def rows() -> list[MissionRow]:
    return msgspec.convert(tomllib.loads(TABLE.read_text(encoding="utf-8"))["row"], list[MissionRow])


def said_of(command: str) -> Said:
    out, err = io.StringIO(), io.StringIO()
    words = [*shlex.split(command), "--json"]
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = _redone(words[3:]) if words[:3] == PAPERS else main(words)
    try:
        answer = json.loads(out.getvalue())
    except ValueError:
        return Said(code, "", err.getvalue() or out.getvalue()[:200], None)
    return Said(code, json.dumps(answer, ensure_ascii=False, separators=(",", ":")), err.getvalue(), answer)


def _redone(words: list[str]) -> int:
    from evidence.papers.__main__ import main as papers

    return papers(words)


def faults(chosen: Iterable[MissionRow], said: dict[str, Said]) -> dict[str, str]:
    """Rows that fail, and why; a command that several rows share is run once."""
    found = {}
    for row in chosen:
        if row.command not in said:
            said[row.command] = said_of(row.command)
        if why := row.wrong(said[row.command]):
            found[row.id] = why
    return found


def _product(keys: tuple[str | float, ...], answer: Any) -> float:
    number = 1.0
    for key in keys:
        number *= _at(answer, key) if isinstance(key, str) else key
    return number


def _at(answer: Any, path: str) -> float:
    for key in path.split("."):
        if key == LENGTH and isinstance(answer, list):
            return float(len(answer))
        answer = answer[int(key)] if isinstance(answer, list) else answer[key]
    return float(answer)
