"""The nodes a site really has, and which switches they share, whatever file told it.

Nodes and switches are joined by cables. A switch with nodes is of the first tier, one that reaches only such switches
of the second, and so on; nodes lie in one block of a tier where switches up to that tier join them. That holds for
trees, for folded Clos networks, where every leaf reaches every spine, and for rails, where a node hangs on many leaves.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from shardwise.arrays import Ints

DOMAINS = ("rack", "block")
"""levels within which NVLink may join nodes, where a domain spans many of them"""
TIERS = ("leaf", "spine", "core")


@dataclass(frozen=True)
class SiteLevel:
    name: str
    block: Ints
    """of each node: which block of this level holds it"""
    names: tuple[str, ...]
    """of the blocks"""


@dataclass(frozen=True)
class Site:
    nodes: tuple[str, ...]
    levels: tuple[SiteLevel, ...]
    """the smallest blocks first; all nodes of a block lie in one block of the next"""
    form: str
    """of the file it was read from"""

    def __post_init__(self) -> None:
        for lower, upper in zip(self.levels, self.levels[1:], strict=False):
            pairs = np.unique(np.stack([lower.block, upper.block]), axis=1)
            twice = np.flatnonzero(np.bincount(pairs[0]) > 1)
            if len(twice):
                raise ValueError(
                    f"topology: {lower.name} {lower.names[twice[0]]!r} lies in two blocks of {upper.name}; write each "
                    "block inside one of the next level"
                )

    def numbers(self, names: Sequence[str], where: str) -> Ints:
        """Places of nodes by name."""
        place = {name: number for number, name in enumerate(self.nodes)}
        for name in names:
            if name not in place:
                raise ValueError(
                    f"{where}: {name!r} is not in the topology ({self.nodes[0]}, ... {len(self.nodes):,} in all); "
                    "write names as the topology has them"
                )
        return np.array([place[name] for name in names], dtype=np.int64)

    def level(self, name: str) -> SiteLevel | None:
        return next((level for level in self.levels if level.name == name), None)

    @property
    def domain(self) -> SiteLevel | None:
        """The level of nodes that one NVLink domain may span, where the file tells it."""
        return next((level for level in self.levels if level.name in DOMAINS), None)

    @property
    def network(self) -> tuple[SiteLevel, ...]:
        """Levels of switches: a rack carries traffic only where no leaf is told."""
        switches = tuple(level for level in self.levels if level.name not in DOMAINS)
        return switches or self.levels[:1]


def site_of_columns(nodes: Sequence[str], columns: Mapping[str, Sequence[str]], form: str) -> Site:
    """`columns`: by level, the smallest first, the block of each node."""
    levels = [_level(name, list(blocks)) for name, blocks in columns.items()]
    return Site(tuple(nodes), tuple(levels), form)


def _level(name: str, blocks: Sequence[str]) -> SiteLevel:
    names = list(dict.fromkeys(blocks))
    number = {each: place for place, each in enumerate(names)}
    return SiteLevel(name, np.array([number[each] for each in blocks], dtype=np.int64), tuple(names))


def site_of_cables(nodes: Sequence[str], cables: Iterable[tuple[str, str]], form: str) -> Site:
    """`cables`: pairs of names, of which one at least is a switch: what is no node is one."""
    near: dict[str, list[str]] = {}
    for one, other in cables:
        near.setdefault(one, []).append(other)
        near.setdefault(other, []).append(one)
    tiers = _tiers(nodes, near)
    tier_of = {switch: number for number, tier in enumerate(tiers) for switch in tier}
    joined = _Joined([*nodes, *tier_of])
    levels = []
    for number, tier in enumerate(tiers):
        for switch in tier:
            for other in near[switch]:
                if tier_of.get(other, -1) <= number:
                    joined.join(switch, other)
        first = {joined.root(switch): switch for switch in reversed(tier)}
        blocks = [first.get(joined.root(node), node) for node in nodes]
        name = TIERS[number] if number < len(TIERS) else f"tier {number + 1}"
        levels.append(_level(name, blocks))
        if len(levels[-1].names) == 1:
            break
    return Site(tuple(nodes), tuple(levels), form)


def _tiers(nodes: Sequence[str], near: Mapping[str, Sequence[str]]) -> list[list[str]]:
    """Switches by their distance from the nodes."""
    seen, last = set(nodes), list(nodes)
    tiers: list[list[str]] = []
    while True:
        found = list(dict.fromkeys(other for each in last for other in near.get(each, ()) if other not in seen))
        if not found:
            return tiers
        seen.update(found)
        tiers.append(found)
        last = found


class _Joined:
    """Sets of names that were joined."""

    def __init__(self, names: Iterable[str]) -> None:
        self._above = {name: name for name in names}

    def root(self, name: str) -> str:
        while self._above[name] != name:
            self._above[name] = self._above[self._above[name]]
            name = self._above[name]
        return name

    def join(self, one: str, other: str) -> None:
        self._above[self.root(one)] = self.root(other)
