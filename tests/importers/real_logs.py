"""Lines of public logs with what they say: program, seconds of each step, or that no time is stated."""

import hashlib
import tomllib
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from shardwise.measured.diagnose.pace import series_of
from shardwise.programs.importers.logs import parse_log

ROUNDED = 6e-3


@dataclass(frozen=True)
class PublicLog:
    source: str
    program: str
    """empty: of no form that is known, which has to be said"""
    text: str
    seconds: tuple[float, ...] = ()
    typical: float | None = None
    """seconds of a step, by the times of its lines"""
    batch: float | None = None

    @property
    def set_aside(self) -> bool:
        return int(hashlib.sha256(self.source.encode()).hexdigest(), 16) % 2 == 1


def public_logs(name: str = "real_logs") -> list[PublicLog]:
    rows = tomllib.loads(Path(__file__).with_name(f"{name}.toml").read_text(encoding="utf-8"))["log"]
    return [PublicLog(**{**row, "seconds": tuple(row.get("seconds", ()))}) for row in rows]


def is_right(log: PublicLog) -> bool:
    found = parse_log(log.text)
    if found is None or not log.program:  # what states no time is refused
        return found is None and not log.seconds and log.typical is None
    if found.program != log.program:
        return False
    try:
        series = series_of(found, samples=log.batch)
    except ValueError:
        return not log.seconds and log.typical is None
    if log.typical is not None:
        return series.exact and abs(float(np.median(series.seconds)) / log.typical - 1) < ROUNDED
    if not log.seconds:
        return not series.exact
    return len(series.seconds) == len(log.seconds) and all(
        abs(ours / theirs - 1) < ROUNDED for ours, theirs in zip(series.seconds.tolist(), log.seconds, strict=True)
    )
