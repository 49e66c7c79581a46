"""Counters of GPUs, NICs and switches over time, and what their movement means for a step."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from shardwise.measured.diagnose.causes import Cause

MISSING = 2**63 - 32
"""DCGM writes numbers from here on for what it does not know"""
CLOCK = 0.9
"""of its own usual clock, or of its peers': below it a GPU is throttled"""
PAUSED = 0.01
"""of the time that a port was stopped; ten times that is severe"""
ECHO = 3
"""readings that must show a low clock"""
_CLOCK = re.compile(r"(?:dcgm_fi_dev_)?sm_clock|clocks\.(?:current\.)?sm|smclk|sm_?clk", re.I)
_VIOLATION = re.compile(
    r"(?:thermal|power|reliability)_violation|pviol|tviol|throttle.*(?:thermal|hw_slowdown|brake)", re.I
)
_XID = re.compile(r"xid", re.I)
_LOST = re.compile(
    r"out_of_sequence|packet_seq_err|prio\d_buf_discard|rx_discards_phy|tx_discards_phy|out_of_buffer|symbol_error|"
    r"port_rcv_errors|port_xmit_discards|local_ack_timeout_err|roce_adp_retrans|link_downed|in_?discards|out_?discards|"
    r"crc_errors|fcs_err|rx_crc_errors_phy",
    re.I,
)
_PAUSE_US = re.compile(r"prio\d_pause_duration", re.I)
_ECC = re.compile(r"ecc.*(?:dbe|uncorrect)|uncorrectable_remapped|row_remap_(?:failure|pending)", re.I)


@dataclass(frozen=True)
class CounterSeries:
    name: str
    place: str
    """GPU, port or host it was read at"""
    readings: tuple[tuple[float | None, float], ...]
    """(seconds since 1970 where known, value) in their order"""

    @property
    def values(self) -> list[float]:
        return [value for _, value in self.readings]

    @property
    def grown(self) -> float:
        """A counter that went back began anew."""
        values = self.values
        return sum(max(after - before, 0.0) for before, after in pairwise(values))

    @property
    def seconds(self) -> float | None:
        times = [at for at, _ in self.readings if at is not None]
        return times[-1] - times[0] if len(times) > 1 and times[-1] > times[0] else None


def counter_causes(series: Sequence[CounterSeries]) -> list[Cause]:
    """What is wrong, the most telling first."""
    return [*_errors(series), *_throttled(series), *_paused(series), *_lost(series)]


def _errors(series: Sequence[CounterSeries]) -> list[Cause]:
    found = []
    for each in series:
        last = each.values[-1] if each.values else 0.0
        if _XID.search(each.name) and last > 0:
            found.append(_cause("gpu_error", each, f"its last Xid is {last:.0f}"))
        elif _ECC.search(each.name) and (each.grown > 0 or (len(each.readings) == 1 and last > 0)):
            found.append(_cause("gpu_error", each, f"{each.name} is {last:,.0f}"))
    return found


def _throttled(series: Sequence[CounterSeries]) -> list[Cause]:
    clocks = [each for each in series if _CLOCK.fullmatch(each.name) and len(each.readings) >= ECHO]
    found = []
    for each in clocks:
        now = median(each.values[-ECHO:])
        others = [median(other.values[-ECHO:]) for other in clocks if other is not each]
        before = max(median(each.values[: max(len(each.values) // 2, 1)]), 1e-9)
        peers = median(others) if others else before
        if now < CLOCK * max(before, peers):
            found.append(_cause("throttled", each, f"its clock is {now:,.0f} MHz, before {before:,.0f}"
                                + (f", its peers' {peers:,.0f}" if others else "")))  # fmt: skip
    known = {cause.where for cause in found}
    found += [_cause("throttled", each, f"{each.name} grew by {each.grown:,.0f}") for each in series
              if _VIOLATION.search(each.name) and each.grown > 0 and each.place not in known]  # fmt: skip
    return found


def _paused(series: Sequence[CounterSeries]) -> list[Cause]:
    found = []
    for each in series:
        seconds = each.seconds
        if not _PAUSE_US.search(each.name) or seconds is None:
            continue
        share = each.grown * 1e-6 / seconds
        if share > PAUSED:
            side = "it had to pause" if each.name.startswith("rx") else "it made its switch pause: a slow receiver"
            found.append(_cause("paused", each, f"{share:.1%} of the time ({each.name}): {side}"))
    return found


def _lost(series: Sequence[CounterSeries]) -> list[Cause]:
    return [_cause("losses", each, f"{each.name} grew by {each.grown:,.0f}") for each in series
            if _LOST.search(each.name) and each.grown > 0]  # fmt: skip


def _cause(code: str, each: CounterSeries, evidence: str) -> Cause:
    return Cause(code=code, seconds=0.0, where=each.place, evidence=evidence)
