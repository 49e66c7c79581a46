"""Bandwidths between pairs of nodes: a CSV or JSON table, or an nccl-tests output over two hosts -> Pairs."""

import csv
import io
import math
from pathlib import Path
from typing import Any

from shardwise.bounded import json_of, text_of
from shardwise.measured.diagnose.expect import bus_factor
from shardwise.measured.diagnose.pairs import Pair
from shardwise.programs.importers import nccl_tests
from shardwise.programs.importers._file import read_bytes

MOST_PAIRS = 1_000_000
LONGEST_NAME = 200
FORM = "a table with columns a,b,gb_per_s (CSV, or a JSON list of such objects), or nccl-tests output over two hosts"


def pairs_of(paths: list[Path]) -> list[Pair]:
    """All pairs of all files; of a pair measured twice the better counts."""
    best: dict[tuple[str, str], Pair] = {}
    for path in paths:
        for pair in _pairs(path):
            ends = (min(pair.a, pair.b), max(pair.a, pair.b))
            if ends not in best or best[ends].bytes_per_s < pair.bytes_per_s:
                best[ends] = pair
        if len(best) > MOST_PAIRS:
            raise ValueError(f"pairs: more than {MOST_PAIRS:,} pairs; measure fewer")
    if not best:
        raise ValueError(f"pairs: no pair in {len(paths)} files; write {FORM}")
    return list(best.values())


def _pairs(path: Path) -> list[Pair]:
    raw = read_bytes(path, "pairs")
    text = text_of(raw, path.name, "pairs")
    if raw.lstrip()[:1] in (b"[", b"{"):
        try:
            data = json_of(raw)
        except ValueError as error:
            raise ValueError(f"pairs: {path.name} is not readable as JSON: {str(error)[:200]}") from None
        if nccl_tests.is_json(data):
            return [_measured(nccl_tests.from_json(data), path)]
        rows = data.get("pairs") if isinstance(data, dict) else data
        return _rows(rows if isinstance(rows, list) else [], path)
    if nccl_tests.is_nccl_tests(text):
        return [_measured(nccl_tests.from_text(text), path)]
    try:
        return _rows(list(csv.DictReader(io.StringIO(text))), path)
    except csv.Error as error:
        raise ValueError(f"pairs: {path.name}: {str(error)[:200]}; write {FORM}") from None


def _measured(run: nccl_tests.NcclRun, path: Path) -> Pair:
    """The largest size tells what the links carry."""
    if len(run.hosts) != 2:
        raise ValueError(f"pairs: {path.name} ran over {len(run.hosts)} hosts; a pair has two")
    point = max(run.points, key=lambda row: float(row["bytes"]))
    bus = bus_factor(str(point["op"]), run.ranks) * float(point["bytes"]) / float(point["seconds"])
    return Pair(run.hosts[0], run.hosts[1], bus)


def _rows(rows: list[Any], path: Path) -> list[Pair]:
    found = []
    for number, row in enumerate(rows[: MOST_PAIRS + 1], start=1):
        cells = {str(key).strip(): value for key, value in row.items()} if isinstance(row, dict) else {}
        ends = [str(cells.get(key) or "").strip()[:LONGEST_NAME] for key in ("a", "b")]
        try:
            rate = float(cells["gb_per_s"])
        except (KeyError, TypeError, ValueError, OverflowError):
            rate = math.nan
        if not all(end.isprintable() and end for end in ends) or ends[0] == ends[1] or not 0 < rate < 1e6:
            raise ValueError(f"pairs: {path.name}, entry {number}: two hosts and GB/s above 0 are needed; write {FORM}")
        found.append(Pair(ends[0], ends[1], rate * 1e9))
    return found
