"""Tables and trees that nvidia-smi prints."""

import re
from collections.abc import Sequence

from shardwise.run.preflight.finding import Finding, failed, unknown
from shardwise.run.preflight.node import Node, Printed

BASE = ("index", "name", "uuid", "pci.bus_id", "driver_version", "vbios_version", "memory.total", "memory.used")
DRIVER_GPUS = "/proc/driver/nvidia/gpus"
MIB = 2**20
_LOST = re.compile(r"(Unable to determine the device handle[^\n]{0,120}|GPU is lost[^\n]{0,80})", re.IGNORECASE)
_GPU = re.compile(r"^GPU (\d{1,3}): ")
_LINK_RATE = re.compile(r"^\s*Link (\d{1,2}): (?:([\d.]{1,12}) GB/s|(<inactive>))\s*$")
_LINK_ERRORS = re.compile(r"^\s*Link (\d{1,2}): (\w[\w ]{0,30}?) ?(?:Errors?|Error Counter)?: (\d{1,20})\s*$")
_FABRIC = re.compile(r"^\s+(State|Status)\s+: (\S[^\n]{0,60})$")


def query(fields: Sequence[str], what: str = "gpu") -> str:
    return f"nvidia-smi --query-{what}={','.join(fields)} --format=csv,noheader,nounits"


def rows_of(text: str, fields: Sequence[str]) -> list[dict[str, str]]:
    """Of a table without head; lines with other numbers of cells are left out."""
    found = []
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) == len(fields):
            found.append(dict(zip(fields, cells, strict=True)))
    return found


def number_of(text: str) -> float | None:
    """None for [N/A] and the like."""
    words = text.split()
    try:
        value = float(words[0]) if words and len(words[0]) < 40 else None
    except ValueError:
        return None
    return value if value is not None and abs(value) < 1e30 else None


def gpus_of(node: Node) -> list[dict[str, str]] | Finding:
    """The GPUs, or why they cannot be told."""
    return table(node, BASE)


def table(node: Node, fields: Sequence[str], what: str = "gpu") -> list[dict[str, str]] | Finding:
    """One row a GPU. A table that lacks a GPU which the driver lists is no table of all GPUs."""
    printed = node.run(query(fields, what))
    if printed is None:
        there = node.names(DRIVER_GPUS)
        if there:
            return unknown(f"{len(there)} GPUs of NVIDIA, but no nvidia-smi", "install nvidia-smi or nvidia-ml-py")
        return unknown("nvidia-smi is not installed", "on a node with NVIDIA GPUs install its driver's tools")
    lost = _LOST.search(printed.text)
    if lost:
        return failed(lost[0], "reset the GPU or reboot; if it comes again, replace it")
    rows = rows_of(printed.text, fields)
    if printed.code or not rows:
        return unknown(f"nvidia-smi: {_said(printed)}", "run it by hand; is the driver loaded and new enough?")
    listed = len(node.names(DRIVER_GPUS))
    if listed and len(rows) != listed:
        return unknown(f"nvidia-smi listed {len(rows)} GPUs, the driver has {listed}", "run it again by hand")
    return rows


def _said(printed: Printed) -> str:
    line = next((line.strip() for line in printed.text.splitlines() if line.strip()), "")
    return f"{line[:100] or 'it printed nothing'} (exit code {printed.code})"


def link_rates(text: str) -> dict[int, list[float | None]]:
    """GPU -> GB/s of each NVLink, None: inactive; from `nvidia-smi nvlink -s`."""
    found: dict[int, list[float | None]] = {}
    gpu = None
    for line in text.splitlines():
        if head := _GPU.match(line):
            gpu = int(head[1])
            found.setdefault(gpu, [])
        elif (link := _LINK_RATE.match(line)) and gpu is not None:
            found[gpu].append(number_of(link[2]) if link[2] else None)
    return found


def link_errors(text: str) -> dict[int, dict[str, int]]:
    """GPU -> kind of error -> count over its NVLinks; from `nvidia-smi nvlink -e`."""
    found: dict[int, dict[str, int]] = {}
    gpu = None
    for line in text.splitlines():
        if head := _GPU.match(line):
            gpu = int(head[1])
            found.setdefault(gpu, {})
        elif (link := _LINK_ERRORS.match(line)) and gpu is not None:
            kind = link[2].strip().lower()
            found[gpu][kind] = found[gpu].get(kind, 0) + int(link[3])
    return found


def fabric_states(text: str) -> list[tuple[str, str]]:
    """(State, Status) of each GPU's fabric, from lines of `nvidia-smi -q`."""
    found: list[tuple[str, str]] = []
    inside, state = False, ""
    for line in text.splitlines():
        words = _FABRIC.match(line)
        if line.strip() == "Fabric":
            inside, state = True, ""
        elif inside and words and words[1] == "State":
            state = words[2].strip()
        elif inside and words and words[1] == "Status":
            found.append((state, words[2].strip()))
            inside = False
    return found
