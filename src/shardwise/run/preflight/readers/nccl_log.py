"""What NCCL says of itself with NCCL_DEBUG=INFO: its version, the network it took, and GPUDirect."""

import re
from dataclasses import dataclass

KEEP = r"NCCL INFO (NET/|Using network|NCCL version)|NCCL version|via NET/|GDRDMA|NCCL WARN"
_CARD = re.compile(r"\[\d{1,2}\](\S{1,40}?):\d{1,2}/(IB|RoCE)")
_LANE = re.compile(r"\[\d{1,2}\]([\w.@-]{1,15}):")
_VERSION = re.compile(r"NCCL version (\d[\w.+]{1,30})")


@dataclass(frozen=True)
class NcclChoice:
    network: str
    """IB, Socket, the name of a plug-in, or empty"""
    devices: tuple[str, ...]
    direct: bool | None
    """GPUDirect; None where no line tells"""
    version: str
    warnings: tuple[str, ...]


def nccl_choice(text: str) -> NcclChoice | None:
    """None where the text has no line of NCCL."""
    if "NCCL" not in text:
        return None
    network, devices, direct = "", list[str](), None
    for line in text.splitlines():
        if "NET/IB : Using" in line:
            network, devices = "IB", [card for card, _ in _CARD.findall(line)]
        elif "NET/Socket : Using" in line and not network:
            network, devices = "Socket", _LANE.findall(line)
        elif (named := re.search(r"Using network (\S{1,40})", line)) and not (network and devices):
            network = named[1]
        if "via NET/" in line:
            direct = bool(direct) or "GDRDMA" in line
    version = _VERSION.search(text)
    warned = tuple(line.partition("NCCL WARN")[2].strip()[:160] for line in text.splitlines() if "NCCL WARN" in line)
    return NcclChoice(network, tuple(dict.fromkeys(devices)), direct, version[1] if version else "", warned[:20])
