"""The machine as NCCL sees it: the XML of NCCL_TOPO_DUMP_FILE (or NCCL_TOPO_FILE) -> Topology.

The file is untrusted: no document type, no entities, a bound on size, elements and depth.
"""

import re
from dataclasses import dataclass, field
from xml.parsers import expat

from shardwise.programs.importers.topology import MOST_DEVICES, SeenGpu, SeenNic, Topology

FORM = "NCCL topology XML"
MOST_BYTES = 8 * 2**20
MOST_ELEMENTS = 20_000
DEEPEST = 64
# device id -> catalog name (pci-ids.ucw.cz); memory sizes of one chip have ids of their own
DEVICES = {
    "0x1db1": "v100", "0x1db5": "v100", "0x20b0": "a100-40", "0x20b2": "a100-80", "0x20b5": "a100-80-pcie",
    "0x2330": "h100", "0x2331": "h100-pcie", "0x2324": "h800", "0x2335": "h200", "0x2329": "h20", "0x2342": "gh200",
    "0x2901": "b200", "0x2941": "gb200", "0x3182": "b300", "0x31c2": "gb300",
    "0x2684": "rtx4090",
}  # fmt: skip
# compute capability -> the usual card (with NVLink, without, with a CPU on the same module)
BY_CAPABILITY = {
    70: ("v100", "v100", "v100"), 80: ("a100-80", "a100-80-pcie", "a100-80"), 89: ("rtx4090", "rtx4090", "rtx4090"),
    90: ("h100", "h100-pcie", "gh200"), 100: ("b200", "b200", "gb200"), 103: ("b300", "b300", "gb300"),
}  # fmt: skip
SWITCH_CLASS = "0x0680"
_SPEED = re.compile(r"^\s*(\d{1,3}(?:\.\d{1,3})?)\s*GT/s", re.IGNORECASE)


@dataclass
class Element:
    tag: str
    attributes: dict[str, str]
    children: list["Element"] = field(default_factory=list)

    def whole(self, name: str) -> int:
        text = self.attributes.get(name, "")
        return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0


def is_topology(raw: bytes) -> bool:
    return raw.lstrip()[:1] == b"<"


def parse(raw: bytes) -> Topology:
    root = _tree(raw)
    if root.tag != "system":
        raise ValueError(f"from: XML with <{root.tag[:40]}> at its top; a topology of NCCL begins with <system>")
    found = _Found()
    found.walk(root, None)
    if not found.gpus:
        raise ValueError("from: no GPU in the topology; dump it with NCCL_TOPO_DUMP_FILE from a job that uses them")
    return found.topology()


def _tree(raw: bytes) -> Element:
    if len(raw) > MOST_BYTES:
        raise ValueError(f"from: a topology of more than {MOST_BYTES // 2**20} MiB; is it one?")
    top = Element("", {})
    open_ = [top]
    count = 0

    def start(tag: str, attributes: dict[str, str]) -> None:
        nonlocal count
        count += 1
        if count > MOST_ELEMENTS or len(open_) > DEEPEST:
            raise ValueError(f"from: a topology of over {MOST_ELEMENTS:,} elements or {DEEPEST} levels; is it one?")
        element = Element(tag, {key: value[:200] for key, value in attributes.items()})
        open_[-1].children.append(element)
        open_.append(element)

    def refuse(*_: object) -> None:
        raise ValueError("from: the XML brings a document type or entities of its own; NCCL writes none: remove them")

    parser = expat.ParserCreate()
    parser.StartElementHandler = start
    parser.EndElementHandler = lambda _: open_.pop()
    parser.StartDoctypeDeclHandler = refuse
    parser.EntityDeclHandler = refuse
    try:
        parser.Parse(raw, True)
    except (expat.ExpatError, LookupError) as error:  # the second for an encoding nobody has
        raise ValueError(f"from: not readable as XML: {error}") from None
    return top.children[0]


class _Found:
    """GPUs and cards as the walk meets them; `above` is the PCIe switch a device hangs under."""

    def __init__(self) -> None:
        self.gpus: list[tuple[Element, Element, Element | None]] = []
        self.nets: dict[str, tuple[Element, Element | None]] = {}

    def walk(self, element: Element, above: Element | None) -> None:
        for child in element.children:
            kind = child.attributes.get("class", "")
            inner = [sub for sub in child.children if sub.tag == "gpu"]
            if child.tag == "pci" and (inner or kind.startswith("0x03")):
                self.gpus.append((child, inner[0] if inner else Element("gpu", {}), above))
            elif child.tag == "net" or (child.tag == "pci" and kind.startswith("0x02") and not child.children):
                name = child.attributes.get("name") or child.attributes.get("busid", "?")
                # a card that NCCL lists under both CPUs is one card
                self.nets.setdefault(name, (child, above))
            else:
                self.walk(child, child if child.tag == "pci" and kind.startswith("0x06") else above)
            if len(self.gpus) + len(self.nets) > MOST_DEVICES:
                raise ValueError(f"from: a topology of more than {MOST_DEVICES:,} devices; is it one machine's?")

    def topology(self) -> Topology:
        near = {id(above): name for name, (_, above) in self.nets.items() if above is not None}
        gpus = tuple(
            SeenGpu(
                name=f"GPU {inner.attributes.get('dev', index)} ({outer.attributes.get('busid', '?')[:20]})",
                nvlinks=sum(link.whole("count") for link in inner.children if link.tag == "nvlink"),
                pcie_bytes_per_s=_pcie(outer), nic=near.get(id(above)) if above is not None else None,
            ) for index, (outer, inner, above) in enumerate(self.gpus)
        )  # fmt: skip
        links = [link for _, inner, _ in self.gpus for link in inner.children if link.tag == "nvlink"]
        switched = any(link.attributes.get("tclass", "").startswith(SWITCH_CLASS) for link in links)
        gpu, guessed = self._gpu(bool(links))
        joined = all(seen.nvlinks for seen in gpus) and (switched or _one_piece([pair[:2] for pair in self.gpus]))
        return Topology(FORM, gpus, tuple(_nic(name, net) for name, (net, _) in self.nets.items()), joined, switched,
                        gpu, guessed)  # fmt: skip

    def _gpu(self, linked: bool) -> tuple[str | None, str]:
        outer, inner, _ = self.gpus[0]
        device, capability = outer.attributes.get("device", "").lower(), inner.whole("sm")
        if device in DEVICES:
            return DEVICES[device], ""
        with_module = any(sub.tag == "c2c" for sub in inner.children)
        usual = BY_CAPABILITY.get(capability)
        if usual is None:
            return None, ""
        name = usual[2] if with_module else usual[0] if linked else usual[1]
        return name, f"GPU taken as {name} by compute capability {capability / 10:.1f}; write --gpu if it is another"


def _pcie(element: Element) -> float | None:
    speed, width = _SPEED.match(element.attributes.get("link_speed", "")), element.whole("link_width")
    return float(speed[1]) * 1e9 / 8 * width if speed and width else None


def _nic(name: str, net: Element) -> SeenNic:
    speed, rail, latency = net.whole("speed"), net.attributes.get("rail", ""), net.attributes.get("latency", "")
    micros = float(latency) if re.fullmatch(r"\d{1,6}(\.\d{1,9})?", latency) else 0.0
    return SeenNic(
        name=name[:60], bytes_per_s=speed * 1e6 / 8 if speed else None,
        rail=int(rail) if rail.isascii() and rail.isdigit() and len(rail) < 6 else None,
        latency_s=micros * 1e-6 or None,
    )  # fmt: skip


def _one_piece(gpus: list[tuple[Element, Element]]) -> bool:
    """Do links from GPU to GPU join all of them."""
    places = {outer.attributes.get("busid", "").lower(): index for index, (outer, _) in enumerate(gpus)}
    reached, waiting = {0}, [0]
    while waiting:
        for link in gpus[waiting.pop()][1].children:
            place = places.get(link.attributes.get("target", "").lower())
            if place is not None and place not in reached:
                reached.add(place)
                waiting.append(place)
    return len(reached) == len(gpus) and len(gpus) > 1
