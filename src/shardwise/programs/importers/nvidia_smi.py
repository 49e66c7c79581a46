"""The matrix of `nvidia-smi topo -m` -> Topology. It tells who is joined to whom; speeds are not in it."""

import re
from dataclasses import dataclass

from shardwise.programs.importers.topology import SeenGpu, SeenNic, Topology

FORM = "nvidia-smi topo -m"
MOST_BYTES = 2**20
MOST_NAMES = 256
_STYLE = re.compile(r"\x1b\[[0-9;]{0,20}m")
_GPU = re.compile(r"^GPU\d{1,3}$")
_NIC = re.compile(r"^(NIC\d{1,3}|mlx5_\S{1,30})$")
_LEGEND = re.compile(r"^\s*(NIC\d{1,3}):\s*(\S{1,60})\s*$")
_CELL = re.compile(r"^(X|NV\d{1,3}|PIX|PXB|PHB|NODE|SYS|SOC)$")
NEAR = ("PIX", "PXB")
# links of each GPU -> the usual card, and what else it may be
BY_LINKS = {
    6: ("v100", ""), 12: ("a100-80", "an A100 40 GB"), 18: ("h100", "an H200, B200 or another with 18 links"),
    8: ("h800", ""),
}  # fmt: skip


@dataclass(frozen=True)
class DeviceMatrix:
    gpus: list[str]
    nics: list[str]
    cells: dict[str, list[str]]
    """of each device: how it reaches the GPUs, then the cards"""
    legend: dict[str, str]
    """NIC0 -> mlx5_0"""

    def between(self, one: str, other: str) -> str:
        return self.cells[one][[*self.gpus, *self.nics].index(other)]


def parse(raw: bytes) -> Topology:
    matrix = parse_matrix(raw)
    return _topology(matrix.gpus, matrix.nics, matrix.cells, matrix.legend)


def parse_matrix(raw: bytes) -> DeviceMatrix:
    """Every GPU has a row in it."""
    if len(raw) > MOST_BYTES:
        raise ValueError(f"from: more than {MOST_BYTES // 2**20} MiB; keep only the output of nvidia-smi topo -m")
    lines = [_STYLE.sub("", line) for line in raw.decode("utf-8", errors="replace").splitlines()]
    columns, body = _header(lines)
    cells = _cells(body, columns)
    gpus = [name for name in columns if _GPU.match(name)]
    nics = [name for name in columns if _NIC.match(name)]
    missing = [name for name in gpus if name not in cells]
    if not gpus or missing:
        raise ValueError(f"from: the matrix has no row of {', '.join(missing[:4]) or 'a GPU'}; keep its rows whole")
    legend = {found[1]: found[2] for found in map(_LEGEND.match, lines) if found}
    return DeviceMatrix(gpus, nics, cells, legend)


def _header(lines: list[str]) -> tuple[list[str], list[str]]:
    for index, line in enumerate(lines):
        words = line.split()
        if words and words[0] == "GPU0" and not (len(words) > 1 and _CELL.match(words[1])):
            names = [word for word in words if _GPU.match(word) or _NIC.match(word)]
            if len(names) > MOST_NAMES:
                raise ValueError(f"from: {len(names)} devices in the matrix; at most {MOST_NAMES} are read")
            return names, lines[index + 1 :]
    raise ValueError("from: no line that begins with GPU0 GPU1 ...; keep the first line of nvidia-smi topo -m")


def _cells(lines: list[str], columns: list[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in lines:
        name, *words = line.split() or [""]
        cells = words[: len(columns)]
        if name in columns and len(cells) == len(columns) and all(_CELL.match(word) for word in cells):
            found[name] = cells
    return found


def _topology(gpus: list[str], nics: list[str], cells: dict[str, list[str]], legend: dict[str, str]) -> Topology:
    counts = {gpu: [int(cell[2:]) for cell in cells[gpu][: len(gpus)] if cell.startswith("NV")] for gpu in gpus}
    switched = len(gpus) > 1 and all(len(row) == len(gpus) - 1 and min(row) >= 4 for row in counts.values())
    # over a switch every cell shows all links of the lesser of the two; from GPU to GPU the cells add up
    links = {gpu: (max(row) if switched else sum(row)) if row else 0 for gpu, row in counts.items()}
    near = {
        gpu: next((nic for nic, cell in zip(nics, cells[gpu][len(gpus) :], strict=False) if cell in NEAR), None)
        for gpu in gpus
    }
    used = {nic for nic in near.values() if nic} | {
        nic for gpu in gpus for nic, cell in zip(nics, cells[gpu][len(gpus) :], strict=False) if cell in NEAR
    }
    seen = tuple(SeenGpu(gpu, links[gpu], nic=legend.get(near[gpu] or "", near[gpu])) for gpu in gpus)
    cards = tuple(SeenNic(legend.get(nic, nic)) for nic in nics if nic in used or not used)
    gpu_name, guessed = _gpu(max(links.values()))
    joined = switched or _one_piece(gpus, cells)
    aside = len(nics) - len(cards)
    notes = (f"{aside} NICs are next to no GPU and left out",) if aside else ()
    return Topology(FORM, seen, cards, joined, switched, gpu_name, guessed, notes)


def _gpu(links: int) -> tuple[str | None, str]:
    if links not in BY_LINKS:
        return None, ""
    name, other = BY_LINKS[links]
    also = f" (it may be {other})" if other else ""
    return name, f"GPU taken as {name} by its {links} NVLinks{also}; write --gpu if it is another"


def _one_piece(gpus: list[str], cells: dict[str, list[str]]) -> bool:
    reached, waiting = {gpus[0]}, [gpus[0]]
    while waiting:
        for gpu, cell in zip(gpus, cells[waiting.pop()], strict=False):
            if cell.startswith("NV") and gpu not in reached:
                reached.add(gpu)
                waiting.append(gpu)
    return len(reached) == len(gpus) and len(gpus) > 1
