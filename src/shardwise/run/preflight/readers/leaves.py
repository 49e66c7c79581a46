"""Which switch each network card hangs on: LLDP's neighbours as JSON, or what ibnetdiscover prints."""

import re
from typing import Any

import msgspec

MOST = 2_000_000
_SWITCH = re.compile(r'^Switch\s+\d{1,5}\s+"(S-[0-9a-fA-F]{1,32})"\s*#\s*"([^"\n]{0,120})"')
_PORT = re.compile(r'^\[(\d{1,4})\]\s+"H-[0-9a-fA-F]{1,32}"\[\d{1,3}\][^#\n]{0,80}#\s*"(\S{1,253}) (\S{1,40})"')
Leaf = tuple[str, str]
"""name of the switch, its port"""


def leaves_from_lldp(text: str) -> dict[str, Leaf]:
    """Interface -> the switch it hangs on, from `lldpctl -f json`."""
    try:
        data: Any = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return {}
    found = data.get("lldp") if isinstance(data, dict) else None
    listed = found.get("interface") if isinstance(found, dict) else None
    entries = listed if isinstance(listed, list) else [listed] if isinstance(listed, dict) else []
    told: dict[str, Leaf] = {}
    for entry in entries[:MOST]:
        for lane, about in entry.items() if isinstance(entry, dict) else ():
            chassis, port = (about.get(key) for key in ("chassis", "port")) if isinstance(about, dict) else (None, None)
            if isinstance(chassis, dict) and chassis:
                # a switch without a name is told by its address alone
                name = _identity(chassis) if "id" in chassis else str(next(iter(chassis)))[:120]
                told[str(lane)[:40]] = (name, _identity(port))
    return told


def _identity(about: Any) -> str:
    inside = about.get("id") if isinstance(about, dict) else None
    value = inside.get("value") if isinstance(inside, dict) else None
    return str(value)[:60] if value is not None else "?"


def leaves_from_discovery(text: str) -> dict[tuple[str, str], Leaf]:
    """(host, card) -> the switch it hangs on, from `ibnetdiscover`."""
    found: dict[tuple[str, str], Leaf] = {}
    switch = ""
    for line in text.splitlines()[:MOST]:
        if head := _SWITCH.match(line):
            name = re.split(r"[;\s]", head[2].strip().removeprefix("MF0;"))[0]
            switch = name.partition(":")[0] or head[1]
        elif not line.strip():
            switch = ""
        elif (port := _PORT.match(line)) and switch:
            found[(port[2], port[3])] = (switch, port[1])
    return found
