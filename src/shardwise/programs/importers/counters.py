"""Counters as tools print them: CSV with a time (nvidia-smi, DCGM, switches), `ethtool -S`, `rdma statistic`, the text
of dcgm-exporter, and the collectives of NCCL's Inspector (ext-profiler/inspector in NCCL's sources). Snapshots of one
command may follow each other in a file, with the time before each."""

import csv
import io
import json
import math
import re
from collections import defaultdict
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path

import msgspec
from msgspec import Struct

from shardwise.measured.diagnose.counters import MISSING, CounterSeries
from shardwise.programs.importers._file import read_text

MOST_READINGS = 2_000_000
WANTED = (
    "CSV with a column of times, `ethtool -S`, `rdma statistic`, the text of dcgm-exporter or NCCL Inspector's JSON"
)
_TIME = re.compile(r"(?:time(?:stamp)?|date|at_s|ts)\b.*", re.I)
_PLACE = re.compile(
    r"(?:index|gpu|uuid|name|host(?:name)?|port|interface|ifname|device|switch|node|entity|pci.*)", re.I
)
_ETHTOOL = re.compile(r"\s{2,}([A-Za-z][\w.\[\]-]{1,80}):\s+(-?\d{1,20})\s*$")
_RDMA = re.compile(r"link (\S{1,60}) (.{1,20000})")
_PROM = re.compile(r"([A-Za-z_:][\w:]{0,200})(?:\{([^}]{0,2000})\})?\s+(-?[0-9.eE+]{1,30})(?:\s+(\d{10,16}))?\s*$")
_STAMP = re.compile(r"(\d{4})[-/](\d\d)[-/](\d\d)[ T](\d\d:\d\d:\d\d)(?:[.,](\d{1,9}))?")
_LABELS = ("Hostname", "hostname", "host", "gpu", "device", "port", "rank", "collective", "message_size")
_NUMBER = re.compile(r"-?[0-9][0-9.]{0,25}(?:[eE][+-]?\d{1,3})?")

Readings = dict[tuple[str, str], list[tuple[float | None, float]]]


def read_counters(path: Path) -> list[CounterSeries]:
    text = read_text(path, "counters")
    found = parse_counters(text, path.stem)
    if not found:
        raise ValueError(f"counters: {path.name} holds none that are known; write {WANTED}")
    return found


def parse_counters(text: str, name: str = "") -> list[CounterSeries]:
    readings: Readings = defaultdict(list)
    if '"coll_perf"' in text:
        _inspector(text, readings)
        return _series(readings)
    first = text.split("\n", 1)[0]
    try:
        if "," in first and _csv(text, readings, name):
            return _series(readings)
    except csv.Error:  # a line that no table has
        readings.clear()
    at: float | None = None
    place = name
    for line in text.splitlines()[:MOST_READINGS]:
        stamp = _time(line) if len(line) < 80 and ":" in line else None
        if stamp is not None and not _ETHTOOL.match(line):
            at = stamp
        elif re.fullmatch(r"\d{10}(?:\.\d{1,9})?", line.strip()):
            at = float(line)
        elif found := _ETHTOOL.match(line):
            _add(readings, found[1], place, at, found[2])
        elif found := _RDMA.match(line.strip()):
            words = found[2].split()
            for key, value in zip(words[::2], words[1::2], strict=False):
                _add(readings, key, found[1], at, value)
        elif found := _PROM.match(line):
            moment = int(found[4]) / 1000 if found[4] else at
            _add(readings, found[1], _labelled(found[2] or "") or place, moment, found[3])
        elif line.lower().startswith("nic statistics") or re.match(r"[\w.-]{1,30}:\s*$", line):
            place = name if line.lower().startswith("nic") else line.strip().rstrip(":")
    return _series(readings)


class _Header(Struct):
    rank: int
    n_ranks: int


class _Metadata(Struct):
    dump_timestamp_us: float
    hostname: str = ""


class _Performance(Struct):
    coll: str
    coll_msg_size_bytes: float
    coll_exec_time_us: float


class _Inspected(Struct):
    """One collective of one rank."""

    header: _Header
    metadata: _Metadata
    coll_perf: _Performance


_AS_WORDS = {"AllReduce": "all_reduce", "AllGather": "all_gather", "ReduceScatter": "reduce_scatter"}


def _inspector(text: str, readings: Readings) -> None:
    """A document on each line, or one after the other over several."""
    decoder, start, taken = json.JSONDecoder(), text.find("{"), 0
    while start >= 0 and taken < MOST_READINGS:
        try:
            document, end = decoder.raw_decode(text, start)
            each = msgspec.convert(document, _Inspected)
        except (ValueError, RecursionError, msgspec.ValidationError):
            start = text.find("\n{", start + 1)
            start += start >= 0
            continue
        start, taken, run = text.find("{", end), taken + 1, each.coll_perf
        ranks = f"{each.metadata.hostname} rank {each.header.rank} of {each.header.n_ranks}".strip()
        readings[
            f"{_AS_WORDS.get(run.coll, run.coll[:40])}_us", f"{ranks[:150]}, {run.coll_msg_size_bytes:,.0f} B"
        ].append((each.metadata.dump_timestamp_us / 1e6, run.coll_exec_time_us))


def _csv(text: str, readings: Readings, name: str) -> bool:
    rows = csv.reader(io.StringIO(text), skipinitialspace=True)
    heads = [head.strip() for head in next(rows, [])]
    times = [place for place, head in enumerate(heads) if _TIME.fullmatch(head)]
    if not times or len(heads) < 2:
        return False
    places = [place for place, head in enumerate(heads) if _PLACE.fullmatch(head)]
    for row in islice(rows, MOST_READINGS):
        if len(row) != len(heads):
            continue
        at = _time(row[times[0]])
        where = " ".join(f"{heads[p]} {row[p].strip()}" for p in places[:2]) or name
        for place, head in enumerate(heads):
            if place not in times and place not in places:
                _add(readings, head.split(" [")[0], where, at, row[place])
    return bool(readings)


def _add(readings: Readings, name: str, place: str, at: float | None, text: str) -> None:
    found = _NUMBER.match(text.strip())
    if not found:
        return
    try:
        value = float(found[0])
    except ValueError:
        return
    if math.isfinite(value) and abs(value) < MISSING:
        readings[name[:200], place[:200]].append((at, value))


def _series(readings: Readings) -> list[CounterSeries]:
    return [CounterSeries(name, place, tuple(values)) for (name, place), values in readings.items()]


def _labelled(text: str) -> str:
    labels = dict(re.findall(r'(\w{1,40})="([^"]{0,200})"', text))
    known = [f"{key} {labels[key]}" for key in _LABELS if key in labels]
    return ", ".join(known)


def _time(text: str) -> float | None:
    text = text.strip()
    found = _STAMP.search(text)
    if found:
        try:
            day = datetime.strptime(f"{found[1]}-{found[2]}-{found[3]} {found[4]}", "%Y-%m-%d %H:%M:%S")
        except ValueError:
            return None
        return day.replace(tzinfo=UTC).timestamp() + float(f"0.{found[5] or 0}")
    if re.fullmatch(r"\d{9,19}(?:\.\d{1,9})?", text):
        value = float(text)
        return value / 1e9 if value > 1e17 else value / 1e3 if value > 1e11 else value
    return None
