"""What an emulated cluster is made of: namespaces, the cables between them, and the routes in each."""

from dataclasses import dataclass
from itertools import count
from math import ceil

from shardwise.fabric.tree import Tree
from shardwise_lab.emulated import Emulated


@dataclass(frozen=True)
class Cable:
    """One veth pair; `out` and `back` are the links it stands for, from the first end to the second and back."""

    ends: tuple[str, str]
    """vertices"""
    devices: tuple[str, str]
    addresses: tuple[str, str]
    out: int
    back: int


@dataclass(frozen=True)
class Route:
    """At a vertex, towards the address of a GPU or (empty) anywhere else: over one neighbour, or several at a time."""

    vertex: str
    target: str
    ways: tuple[tuple[str, str], ...]
    """(address of the neighbour, device)"""


@dataclass(frozen=True)
class Plant:
    hosts: tuple[str, ...]
    switches: tuple[str, ...]
    cables: tuple[Cable, ...]
    routes: tuple[Route, ...]

    @property
    def vertices(self) -> tuple[str, ...]:
        return (*self.hosts, *self.switches)


def host_address(gpu: int) -> str:
    return f"10.77.0.{gpu + 1}"


def plant_of(fabric: Emulated) -> Plant:
    tree = fabric.tree
    laid = _Laid(tree)
    if tree.cluster.node_size > 1:
        laid.nodes()
    if tree.tiers:
        laid.leaves()
    if len(tree.tiers) > 1:
        laid.spines()
    return Plant(
        tuple(f"h{gpu}" for gpu in range(tree.gpus)), tuple(laid.switches), tuple(laid.cables),
        (*_host_routes(tree, laid), *_node_routes(tree, laid), *_leaf_routes(tree, laid), *_spine_routes(tree, laid)),
    )  # fmt: skip


class _Laid:
    """Cables as they are laid; where each neighbour is found from each vertex."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self.switches: dict[str, None] = {}
        self.cables: list[Cable] = []
        self.to: dict[tuple[str, str], tuple[str, str]] = {}
        """(vertex, neighbour) -> the neighbour's address and the device that leads there"""
        self._numbers = count()

    def nodes(self) -> None:
        tree = self.tree
        for gpu in range(tree.gpus):
            self._lay(gpu, f"n{tree.node[gpu]}", "nv0", tree.offsets[0] + gpu, tree.offsets[1] + gpu)

    def leaves(self) -> None:
        tree = self.tree
        for gpu in range(tree.gpus):
            self._lay(gpu, leaf_of(tree, gpu), "eth0", tree.offsets[2] + gpu, tree.offsets[3] + gpu)

    def spines(self) -> None:
        tree = self.tree
        leaf, spine = tree.tiers
        for child in range(ceil(tree.gpus / leaf.block) * leaf.switches):
            block, switch = divmod(child, leaf.switches)
            above = block * leaf.block // spine.block
            for way in range(spine.fan):
                number = switch * spine.fan + way if spine.planes else way
                link = child * spine.fan + way
                ends = (f"l{block}-{switch}", f"s{above}-{number}")
                self._join(ends, (f"u{way}", f"d{child}"), self._pair(), tree.offsets[4] + link, tree.offsets[5] + link)

    def _pair(self) -> tuple[str, str]:
        number = 2 * next(self._numbers)
        return f"10.78.{number >> 8}.{number & 255}", f"10.78.{number >> 8}.{(number & 255) + 1}"

    def _lay(self, gpu: int, switch: str, device: str, out: int, back: int) -> None:
        self._join((f"h{gpu}", switch), (device, f"p{gpu}"), (host_address(gpu), self._pair()[1]), out, back)

    def _join(
        self, ends: tuple[str, str], devices: tuple[str, str], addresses: tuple[str, str], out: int, back: int
    ) -> None:
        for end in ends:
            if not end.startswith("h"):
                self.switches[end] = None
        self.cables.append(Cable(ends, devices, addresses, out, back))
        self.to[ends] = (addresses[1], devices[0])
        self.to[ends[::-1]] = (addresses[0], devices[1])


def leaf_of(tree: Tree, gpu: int) -> str:
    return f"l{gpu // tree.tiers[0].block}-{tree.rail[gpu]}"


def _host_routes(tree: Tree, laid: _Laid) -> list[Route]:
    found = []
    for gpu in range(tree.gpus):
        me, node = f"h{gpu}", f"n{tree.node[gpu]}"
        if tree.tiers:
            found.append(Route(me, "", (laid.to[me, leaf_of(tree, gpu)],)))
        for other in range(tree.gpus):
            near = tree.node[gpu] == tree.node[other] and other != gpu
            turns = tree.tiers and tree.forwards and tree.node[gpu] != tree.node[other]
            if near or (turns and tree.rail[gpu] != tree.rail[other]):
                found.append(Route(me, host_address(other), (laid.to[me, node],)))
    return found


def _node_routes(tree: Tree, laid: _Laid) -> list[Route]:
    """Out of a node, towards a card on another rail: over the GPU whose card is on that rail."""
    if not tree.tiers or not tree.forwards:
        return []
    size = tree.cluster.node_size
    found = []
    for node in range(ceil(tree.gpus / size)):
        for other in range(tree.gpus):
            if tree.node[other] != node:
                hop = node * size + int(tree.rail[other])
                found.append(Route(f"n{node}", host_address(other), (laid.to[f"n{node}", f"h{hop}"],)))
    return found


def _leaf_routes(tree: Tree, laid: _Laid) -> list[Route]:
    """What is not under a leaf goes up, over all its spines by turns of a hash."""
    if len(tree.tiers) < 2:
        return []
    found = []
    for leaf in sorted({leaf_of(tree, gpu) for gpu in range(tree.gpus)}):
        ways = tuple(way for (at, to), way in laid.to.items() if at == leaf and to.startswith("s"))
        found.append(Route(leaf, "", ways))
    return found


def _spine_routes(tree: Tree, laid: _Laid) -> list[Route]:
    if len(tree.tiers) < 2:
        return []
    spines = [switch for switch in laid.switches if switch.startswith("s")]
    return [
        Route(spine, host_address(gpu), (laid.to[spine, leaf_of(tree, gpu)],))
        for spine in spines
        for gpu in range(tree.gpus)
        if (spine, leaf_of(tree, gpu)) in laid.to
    ]
