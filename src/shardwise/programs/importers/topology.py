"""One machine as its tools describe it: GPUs, their links, its network cards; and the cluster made of such machines."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from shardwise.spec.cluster import Cluster, Level
from shardwise.spec.gpu import Gpu
from shardwise.spec.load import gpu_of
from shardwise.spec.usual import usual_fabric

MOST_DEVICES = 4096


@dataclass(frozen=True)
class SeenGpu:
    name: str
    nvlinks: int
    """links that are up, to whatever they lead"""
    pcie_bytes_per_s: float | None = None
    nic: str | None = None
    """the card that shares a PCIe switch with it, where one does"""


@dataclass(frozen=True)
class SeenNic:
    name: str
    bytes_per_s: float | None = None
    """each way; None where the file does not say"""
    rail: int | None = None
    latency_s: float | None = None


@dataclass(frozen=True)
class Topology:
    form: str
    gpus: tuple[SeenGpu, ...]
    nics: tuple[SeenNic, ...]
    joined: bool
    """NVLinks join all GPUs, over switches or from one to the next"""
    switched: bool
    gpu: str | None
    """catalog name, where the file tells it"""
    guessed: str = ""
    """why that GPU, where the file does not state it outright"""
    notes: tuple[str, ...] = ()


def cluster_from_topology(
    topology: Topology, name: str, *, gpus: int | None = None, gpu: str | None = None, nic: float | None = None
) -> tuple[Cluster, list[str]]:
    """`gpus`: of the whole cluster, in machines like this one; `gpu`: in place of what the file says; `nic`: bytes/s of
    each network card. The notes say what was assumed."""
    chosen = gpu or topology.gpu
    if chosen is None:
        raise ValueError(f"gpu: {topology.form} does not say which GPU it is of; write for example '--gpu h100'")
    chip = gpu_of(chosen)
    usual = usual_fabric(chip)
    notes = [topology.guessed] if topology.guessed and gpu is None else []
    node, links = _node(topology, chip, usual.levels[0])
    if usual.tray is not None and node.kind == "nvlink":
        # the file is of one tray; the NVLink domain spans many
        node = replace(node, degree=usual.levels[0].degree)
        links.append(f"NVLink joins {node.degree} GPUs of many trays, as in {usual.name}; the file shows one")
    total = len(topology.gpus) if gpus is None else gpus
    if total < 1:
        raise ValueError(f"gpus: {total}; write 1 or more")
    levels = [replace(node, degree=min(node.degree, total)) if total < node.degree else node]
    network, cards = _network(topology, usual.levels[1], nic)
    if total > node.degree:
        levels.append(replace(network, degree=-(-total // node.degree)))
    notes += [*links, *cards, *topology.notes]
    source = f"{topology.form} of one machine; latencies as {usual.name}"
    return Cluster(name=name, gpu=chip, gpus=total, levels=tuple(levels), source=source), notes


def _node(topology: Topology, chip: Gpu, usual: Level) -> tuple[Level, list[str]]:
    count, notes = len(topology.gpus), []
    most = Counter(seen.nvlinks for seen in topology.gpus).most_common(1)[0][0]
    odd = [seen for seen in topology.gpus if seen.nvlinks != most]
    if odd and topology.switched:
        names = ", ".join(f"{seen.name} has {seen.nvlinks}" for seen in odd[:8])
        notes.append(f"NVLinks differ: {names}, the others {most}; a collective over all runs at the slowest")
    if chip.nvlink is not None and topology.joined and most:
        slowest = min(seen.nvlinks for seen in topology.gpus) if topology.switched else most
        if slowest < chip.nvlink.links and not odd:
            notes.append(f"{slowest} NVLinks per GPU are up; a {chip.name} has {chip.nvlink.links}")
        rate = slowest * chip.nvlink.link_bandwidth
        mesh = () if topology.switched or len(usual.mesh) < count - 1 else usual.mesh
        return replace(usual, kind="nvlink", degree=count, bandwidth=rate, mesh=mesh, torus=()), notes
    if most:
        notes.append("NVLinks do not join all GPUs: collectives over the node go over PCIe")
    rates = [seen.pcie_bytes_per_s for seen in topology.gpus if seen.pcie_bytes_per_s]
    if rates and min(rates) < max(rates):
        slow = ", ".join(g.name for g in topology.gpus if g.pcie_bytes_per_s and g.pcie_bytes_per_s < max(rates))
        notes.append(f"PCIe is narrower or slower at {slow}: {min(rates) / 1e9:.3g} of {max(rates) / 1e9:.3g} GB/s")
    rate = min(rates) if rates else chip.pcie_bandwidth
    return Level(name="node", kind="pcie", degree=count, bandwidth=rate, latency_s=1e-6), notes


def _network(topology: Topology, usual: Level, nic: float | None) -> tuple[Level, list[str]]:
    """What one GPU can send out of the machine: all cards together over all GPUs."""
    count, notes, cards = len(topology.gpus), [], compute_cards(topology.nics)
    rates = [nic or card.bytes_per_s or 0.0 for card in cards]
    if cards and all(rates):
        per_gpu = sum(rates) / count
        notes.append(f"{len(cards)} NICs, {sum(rates) * 8e-9:,.0f} Gbps in all, shared by {count} GPUs")
    else:
        per_gpu = usual.bandwidth
        known = f"the speed of {len(cards)} NICs" if cards else "NICs"
        notes.append(f"{known} not in the file: {per_gpu * 8e-9:.0f} Gbps per GPU assumed; write --nic '400 Gbps'")
    lonely = [seen.name for seen in topology.gpus if seen.nic is None]
    if cards and lonely and len(lonely) < count:
        notes.append(f"no NIC next to {', '.join(lonely[:8])}: its traffic crosses the CPU or NVLink first")
    rails = len({card.rail for card in cards if card.rail is not None}) or (len(cards) if len(cards) > 1 else 1)
    stated = [card.latency_s for card in cards if card.latency_s]
    return replace(
        usual, name="network", bandwidth=per_gpu, latency_s=max(stated) if stated else usual.latency_s, rails=rails,
        oversubscription=1.0, cards=len(cards) if len(cards) < count else 0,
    ), notes  # fmt: skip


def compute_cards(nics: Sequence[SeenNic]) -> list[SeenNic]:
    """The cards that carry collectives: the fast ones, where speeds are known (others manage or store)."""
    fastest = max((card.bytes_per_s or 0.0 for card in nics), default=0.0)
    return [card for card in nics if card.bytes_per_s is None or card.bytes_per_s >= fastest / 2]
