"""Readings judged by how they compare with before, with their peers, or with a limit of catalog/telemetry.toml."""

import re
import tomllib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from statistics import median

import msgspec
from msgspec import Struct

from shardwise import catalog
from shardwise.measured.diagnose.causes import Cause
from shardwise.measured.diagnose.counters import ECHO, CounterSeries
from shardwise.units import time_text

TABLE = Path(catalog.__file__).parent / "telemetry.toml"
PEERS = 3
"""ports of one name, at least, before one is compared with the others"""
COLLECTIVE = re.compile(r"nccl_collective_exec_time_microseconds|(?:all_reduce|all_gather|reduce_scatter)_us", re.I)
_BUSY = re.compile(r"utilization\.gpu|(?:dcgm_fi_dev_)?gpu_util(?:ization)?|dcgm_fi_prof_gr_engine_active", re.I)
_MOVED = re.compile(r"port_(?:xmit|rcv)_data|[rt]x_bytes(?:_phy)?|(?:in|out)_?octets|nic_(?:tx|rx)_bytes", re.I)
_MARKED = re.compile(r"np_ecn_marked_roce_packets|(?:[rt]x_)?(?:wred_)?ecn_?mark(?:s|ed)?(?:_packets)?", re.I)
_NOTICES = re.compile(r"np_cnp_sent|rp_cnp_handled|cnp_(?:sent|received)", re.I)
_PACKETS = re.compile(r"[rt]x_(?:prio\d_)?packets(?:_phy)?|port_(?:xmit|rcv)_packets|packets", re.I)
_FRAMES = re.compile(
    r"(?:[rt]x_?)?(?:prio\d_)?(?:pause|pfc)(?:_?[rt]x)?(?:_(?:frames|ctrl_phy|packets|requests))?", re.I
)
_DURATION = re.compile(r"pause_duration", re.I)
_QUEUE = re.compile(
    r"(?:max_?)?(?:queue|buffer|egress)\w{0,20}?(?:depth|bytes|usage|watermark|occupancy|occupied)\w{0,12}", re.I
)
_OTHER_UNIT = re.compile(r"cell|packet|pkts|percent|pct|share", re.I)


class TelemetryLimit(Struct, frozen=True, forbid_unknown_fields=True):
    value: float
    source: str


@cache
def telemetry_limits() -> dict[str, TelemetryLimit]:
    table = tomllib.loads(TABLE.read_text(encoding="utf-8"))
    return {name: msgspec.convert(each, TelemetryLimit) for name, each in table.items() if isinstance(each, dict)}


def telemetry_causes(series: Sequence[CounterSeries]) -> list[Cause]:
    return [*_idle(series), *_slow_ports(series), *_marked(series), *_pause_frames(series), *_queued(series),
            *_slow_collectives(series)]  # fmt: skip


def _limit(name: str) -> float:
    return telemetry_limits()[name].value


def _cause(code: str, where: str, evidence: str, limit: str) -> Cause:
    return Cause(code=code, seconds=0.0, where=where, evidence=f"{evidence} (limit from {_origin(limit)})")


def _origin(limit: str) -> str:
    return telemetry_limits()[limit].source.split(":")[0].split(",")[0]


def _halves(each: CounterSeries) -> tuple[float, float] | None:
    """The usual value before, and now."""
    if len(each.readings) < 2 * ECHO:
        return None
    return median(each.values[: len(each.values) // 2]), median(each.values[-ECHO:])


def _idle(series: Sequence[CounterSeries]) -> Iterator[Cause]:
    levels = {}
    for each in series:
        if _BUSY.fullmatch(each.name) and (found := _halves(each)) is not None:
            times = 100.0 if each.name.lower().endswith("active") else 1.0
            levels[each.place] = (found[0] * times, found[1] * times)
    low = {}
    for place, (before, now) in levels.items():
        peers = [others[1] for where, others in levels.items() if where != place]
        usual = max(before, median(peers) if peers else 0.0)
        if now < usual - _limit("idle_points"):
            low[place] = f"utilization {now:.0f} %, before {before:.0f} %" + (
                f", its peers {median(peers):.0f} %" if peers else ""
            )
    if len(low) > 1 and len(low) == len(levels):
        where, told = next(iter(low.items()))
        yield _cause("idle_gpu", f"all {len(low)}", f"{where}: {told}", "idle_points")
    else:
        yield from (_cause("idle_gpu", place, told, "idle_points") for place, told in low.items())


def _slow_ports(series: Sequence[CounterSeries]) -> Iterator[Cause]:
    ports: dict[str, list[CounterSeries]] = defaultdict(list)
    for each in series:
        if _MOVED.fullmatch(each.name) and each.seconds:
            ports[each.name].append(each)
    for name, found in ports.items():
        rates = {each.place: each.grown / (each.seconds or 1.0) for each in found}
        usual = median(rates.values())
        if len(rates) < PEERS or usual <= 0:
            continue
        for place, rate in rates.items():
            if rate < _limit("port_share") * usual:
                yield _cause("slow_port", place, f"{name} grows at {rate / usual:.0%} of its peers' rate", "port_share")


def _marked(series: Sequence[CounterSeries]) -> Iterator[Cause]:
    packets: dict[str, float] = {}
    for each in series:
        if _PACKETS.fullmatch(each.name):
            packets[each.place] = max(packets.get(each.place, 0.0), each.grown)
    shown = set()
    for each in series:
        if not _MARKED.fullmatch(each.name) or each.grown <= 0:
            continue
        every = packets.get(each.place, 0.0)
        if every > 0 and each.grown / every > _limit("marked_share"):
            shown.add(each.place)
            yield _cause("marked", each.place, f"{each.name}: {each.grown / every:.1%} of its packets", "marked_share")
        elif not every and each.seconds and each.grown / each.seconds > _limit("notices_per_s"):
            shown.add(each.place)
            yield _cause("marked", each.place, f"{each.name}: {each.grown / each.seconds:,.0f} a second",
                         "notices_per_s")  # fmt: skip
    for each in series:
        if _NOTICES.fullmatch(each.name) and each.place not in shown and each.seconds:
            rate = each.grown / each.seconds
            if rate > _limit("notices_per_s"):
                shown.add(each.place)
                yield _cause("marked", each.place, f"{each.name}: {rate:,.0f} a second", "notices_per_s")


def _pause_frames(series: Sequence[CounterSeries]) -> Iterator[Cause]:
    """Of places that count frames only; a frame says no shorter pause than none, so this is the most it can be."""
    timed = {each.place for each in series if _DURATION.search(each.name)}
    for each in series:
        if not _FRAMES.fullmatch(each.name) or each.place in timed or not each.seconds:
            continue
        share = each.grown / each.seconds * _limit("pause_frame_s")
        if share > _limit("paused_share"):
            yield _cause("paused", each.place, f"{each.name}: {each.grown / each.seconds:,.0f} frames a second, up to "
                         f"{min(share, 1):.0%} of the time", "pause_frame_s")  # fmt: skip


def _queued(series: Sequence[CounterSeries]) -> Iterator[Cause]:
    for each in series:
        if not _QUEUE.fullmatch(each.name) or _OTHER_UNIT.search(each.name) or not each.values:
            continue
        deep = max(each.values) if "watermark" in each.name.lower() else median(each.values[-ECHO:])
        if deep > _limit("queue_bytes"):
            yield _cause("queued", each.place, f"{each.name} stands at {deep / 1e3:,.0f} kB", "queue_bytes")


def _slow_collectives(series: Sequence[CounterSeries]) -> Iterator[Cause]:
    for each in series:
        found = _halves(each) if COLLECTIVE.fullmatch(each.name) else None
        if found is not None and found[1] > _limit("collective_ratio") * found[0] > 0:
            before, now = found
            yield _cause("slow_collective", each.place, f"{time_text(now * 1e-6)}, before {time_text(before * 1e-6)}",
                         "collective_ratio")  # fmt: skip
