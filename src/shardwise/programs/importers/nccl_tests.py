"""Output of nccl-tests (all_reduce_perf and its kin), as text or as its -J JSON -> measured collectives."""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from shardwise.bounded import json_of
from shardwise.cost.calibrate.profile import Point

OPS = {
    "all_reduce": "all_reduce", "all_gather": "all_gather", "reduce_scatter": "reduce_scatter",
    "alltoall": "all_to_all", "broadcast": "broadcast", "sendrecv": "send",
}  # fmt: skip
MOST_POINTS = 10_000
MOST_RANKS = 10**6
_NAMED = re.compile(rf"\b({'|'.join(OPS)})_perf\b")
_RANK = re.compile(r"^#\s+Rank\s+(\d{1,7})\b[^\n]{0,200}?\bon\s+(\S{1,200})\s+device\s+\d+\s*(?:\[[^\]]{0,40}\])?(.*)$")


@dataclass(frozen=True)
class NcclRun:
    points: tuple[Point, ...]
    device: str
    """what the driver calls the GPUs; empty where the file does not say"""
    ranks: int
    hosts: tuple[str, ...]
    """in the order of their first ranks"""

    @property
    def nodes(self) -> int:
        return len(self.hosts)


def is_nccl_tests(text: str) -> bool:
    head = text[:65536]
    return "nccl-tests" in head or ("busbw" in head and "algbw" in head) or bool(_NAMED.search(head))


def from_text(text: str) -> NcclRun:
    ranks: set[str] = set()
    hosts: dict[str, None] = {}
    device, op = "", ""
    points: list[tuple[str, int, float, float]] = []
    for line in text.splitlines():
        line = line[:2000]
        named, ranked = _NAMED.search(line), _RANK.match(line)
        if named:
            op = OPS[named[1]]
        if ranked:
            ranks.add(ranked[1])
            hosts[ranked[2]] = None
            device = device or ranked[3].strip()[:200]
        elif not line.startswith("#"):
            row = _row(line)
            if row is not None and len(points) < MOST_POINTS:
                points.append((op, *row))
    if not points:
        raise ValueError("from: an nccl-tests table without rows; keep the lines with size, time and busbw")
    count = len(ranks)
    if count < 2:
        raise ValueError(f"from: {count} ranks named in the nccl-tests output; keep its '# Rank ...' lines (2 or more)")
    found = tuple(_point(op, size, micros, ratio, count, len(hosts)) for op, size, micros, ratio in points)
    return NcclRun(found, device, count, tuple(hosts))


def _row(line: str) -> tuple[int, float, float] | None:
    """(bytes, microseconds, bus over algorithm bandwidth) of `size count type [redop root] time algbw busbw ...`."""
    words = line.split()
    if len(words) < 6 or not (words[0].isascii() and words[0].isdigit() and words[1].isdigit()) or len(words[0]) > 15:
        return None
    at = 5 if words[3].isalpha() else 3
    try:
        micros, algorithm, bus = (float(word) for word in words[at : at + 3])
    except ValueError:
        return None
    if not (int(words[0]) > 0 and 0 < micros < 1e10):
        return None
    return int(words[0]), micros, bus / algorithm if algorithm > 0 else math.nan


def _point(op: str, size: int, micros: float, ratio: float, ranks: int, nodes: int) -> Point:
    if not op:
        # only an all-reduce moves nearly every byte twice
        if not abs(ratio - 2 * (ranks - 1) / ranks) < 0.1 * ratio or ranks == 2:
            raise ValueError(
                "from: the nccl-tests output does not name its collective; keep the line with 'all_reduce_perf' or such"
            )
        op = "all_reduce"
    return {"op": op, "bytes": size, "ranks": ranks, "nodes": nodes, "seconds": micros * 1e-6}


def is_json(data: Any) -> bool:
    return isinstance(data, dict) and isinstance(data.get("results"), list) and isinstance(data.get("config"), dict)


def from_json(data: dict[str, Any]) -> NcclRun:
    named = _NAMED.search(" ".join(str(word)[:500] for word in _list(data.get("args"))[:50]))
    if named is None:
        raise ValueError("from: the nccl-tests JSON does not name its program in 'args'; keep that field")
    config = data["config"]
    devices = [entry for entry in _list(config.get("devices")) if isinstance(entry, dict)]
    # one entry per process, which drives threads x GPUs ranks
    ranks = len(devices) * _whole(config.get("nthreads")) * _whole(config.get("ngpus"))
    if not 2 <= ranks <= MOST_RANKS:
        raise ValueError(f"from: the nccl-tests JSON names {ranks} ranks in config.devices; 2 or more are needed")
    hosts = tuple(dict.fromkeys(str(entry.get("hostname"))[:200] for entry in devices))
    points: tuple[Point, ...] = tuple(
        {"op": OPS[named[1]], "bytes": size, "ranks": ranks, "nodes": len(hosts), "seconds": micros * 1e-6}
        for size, micros in _timed(_list(data.get("results"))[:MOST_POINTS])
    )
    if not points:
        raise ValueError("from: the nccl-tests JSON has no timed entry in 'results'; was the test interrupted?")
    return NcclRun(points, str(devices[0].get("device_info", ""))[:200], ranks, hosts)


def _timed(results: list[Any]) -> Iterator[tuple[int, float]]:
    for entry in results:
        if not isinstance(entry, dict):
            continue
        body = entry.get("out_of_place") or entry.get("in_place")
        size, micros = entry.get("size"), body.get("time") if isinstance(body, dict) else None
        if isinstance(micros, bool) or not isinstance(micros, int | float) or not 0 < micros < 1e10:
            continue
        if isinstance(size, int) and 0 < size < 10**15:
            yield size, float(micros)


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _whole(value: Any) -> int:
    return value if isinstance(value, int) and 1 <= value <= MOST_RANKS else 1


def parse(raw: bytes) -> NcclRun:
    """Text or JSON, whichever it is."""
    if raw.lstrip()[:1] == b"{":
        try:
            data = json_of(raw)
        except ValueError as error:
            raise ValueError(f"from: not readable as JSON: {str(error)[:200]}") from None
        if not is_json(data):
            raise ValueError("from: JSON without the 'config' and 'results' of nccl-tests -J")
        return from_json(data)
    return from_text(raw.decode("utf-8", errors="replace"))
