"""Priority flow control as mlnx_qos and dcb print it, active MTU as ibv_devinfo prints it."""

import re
from dataclasses import dataclass

_TRUST = re.compile(r"trust state: (\w{1,10})", re.IGNORECASE)
_ENABLED = re.compile(r"^\s*enabled\s+((?:[01]\s+){7}[01])\s*$", re.MULTILINE)
_DCB = re.compile(r"\b([0-7]):(on|off)\b")
_HCA = re.compile(r"^hca_id:\s+(\S{1,40})\s*$")
_ACTIVE = re.compile(r"^\s*active_mtu:\s+(\d{3,5})\b")


@dataclass(frozen=True)
class FlowControl:
    priorities: tuple[int, ...]
    """that pause"""
    trust: str
    """dscp or pcp; empty where it is not told"""


def flow_control_of(text: str) -> FlowControl | None:
    """Of what `mlnx_qos -i LANE` or `dcb pfc show dev LANE` prints; None where it tells none."""
    trust = _TRUST.search(text)
    table = _ENABLED.search(text)
    if table:
        on = tuple(place for place, word in enumerate(table[1].split()) if word == "1")
        return FlowControl(on, trust[1].lower() if trust else "")
    told = dict(_DCB.findall(text))
    if "prio-pfc" in text and len(told) == 8:
        return FlowControl(tuple(int(each) for each in sorted(told) if told[each] == "on"), "")
    return None


def active_mtus(text: str) -> dict[str, int]:
    """Card -> bytes, from `ibv_devinfo`."""
    found: dict[str, int] = {}
    card = ""
    for line in text.splitlines():
        if head := _HCA.match(line):
            card = head[1]
        elif (mtu := _ACTIVE.match(line)) and card:
            found.setdefault(card, int(mtu[1]))
    return found
