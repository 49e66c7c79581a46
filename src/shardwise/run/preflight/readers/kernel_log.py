"""Lines of the kernel's log that speak of GPUs and links: Xid, SXid, lost carrier, narrow PCIe."""

import re
from dataclasses import dataclass

KEEP = r"NVRM: Xid|SXid|lost carrier|[Ll]ink (is )?[Dd]own|available PCIe bandwidth|fallen off the bus"
_STAMP = re.compile(r"^\[\s*(\d{1,12}\.\d{1,9})\]")
_XID = re.compile(r"\b(S?Xid) \(PCI:([0-9A-Fa-f:.]{4,20})\): (\d{1,6})\b")
_CARRIER = re.compile(r"\b([A-Za-z][\w.-]{1,15}): (?:lost carrier|[Ll]ink (?:is )?[Dd]own)")
_NARROW = re.compile(r"([\d.]{1,10}) Gb/s available PCIe bandwidth, limited by ([\d.]{1,6} GT/s PCIe x\d{1,2})")


@dataclass(frozen=True)
class LogEvent:
    kind: str
    """xid, sxid, flap or narrow"""
    where: str
    code: int
    age_s: float | None
    """None where the line has no time that can be told"""
    text: str


def events_of(text: str, uptime_s: float | None) -> list[LogEvent]:
    found = []
    for line in text.splitlines():
        stamp = _STAMP.match(line)
        age = uptime_s - float(stamp[1]) if stamp and uptime_s is not None else None
        if xid := _XID.search(line):
            found.append(LogEvent(xid[1].lower(), xid[2], int(xid[3]), age, line.strip()[:200]))
        elif narrow := _NARROW.search(line):
            found.append(LogEvent("narrow", narrow[2], 0, age, f"{narrow[1]} Gb/s, limited by {narrow[2]}"))
        elif carrier := _CARRIER.search(line):
            found.append(LogEvent("flap", carrier[1], 0, age, line.strip()[:200]))
    return found


def is_log(text: str) -> bool:
    """Has a line the time since the start in front, as the kernel writes it."""
    return any(_STAMP.match(line) for line in text.splitlines())


def uptime_of(text: str | None) -> float | None:
    """Of /proc/uptime."""
    words = (text or "").split()
    return float(words[0]) if words and re.fullmatch(r"\d{1,12}(\.\d{1,6})?", words[0]) else None
