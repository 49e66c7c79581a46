"""Files and tables of a Linux host: memory, limits, mounts."""

import re
from dataclasses import dataclass

_LIMIT = re.compile(r"^(Max [a-z ]{3,30}?)\s{2,}(\S{1,24})\s+(\S{1,24})", re.MULTILINE)
_ACS = re.compile(r"ACSCtl:\s+SrcValid([+-])")
UNLIMITED = float("inf")


@dataclass(frozen=True)
class Mount:
    at: str
    total_bytes: float
    free_bytes: float

    @property
    def full(self) -> float:
        return 1.0 - self.free_bytes / self.total_bytes


def memory_of(text: str) -> dict[str, float]:
    """Bytes by name, of /proc/meminfo."""
    found = {}
    for line in text.splitlines():
        name, colon, rest = line.partition(":")
        words = rest.split()
        if colon and len(words) == 2 and words[1] == "kB" and words[0].isdecimal() and len(words[0]) < 16:
            found[name.strip()] = float(words[0]) * 1024
    return found


def limits_of(text: str) -> dict[str, float]:
    """Soft limits by name, of /proc/self/limits."""
    found = {}
    for name, soft, _ in _LIMIT.findall(text):
        if soft == "unlimited":
            found[name] = UNLIMITED
        elif soft.isdecimal() and len(soft) < 24:
            found[name] = float(soft)
    return found


def mounts_of(text: str) -> list[Mount]:
    """Of `df -P -k`."""
    found = []
    for line in text.splitlines():
        words = line.split(None, 5)
        if (
            len(words) == 6
            and all(word.isdecimal() and len(word) < 20 for word in words[1:4])
            and words[4].endswith("%")
        ):
            used, free = float(words[2]) * 1024, float(words[3]) * 1024
            if used + free > 0:
                found.append(Mount(words[5].strip(), used + free, free))
    return found


def isolating_bridges(text: str) -> tuple[int, int]:
    """(bridges that send peer traffic up, bridges told of), of lines `ACSCtl:` that lspci -vvv prints."""
    signs = _ACS.findall(text)
    return signs.count("+"), len(signs)
