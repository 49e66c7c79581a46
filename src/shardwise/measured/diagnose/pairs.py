"""Which pairs of nodes to measure, and which link is slow given what they measured.

The fabric is a tree: every node has a link into it, every block of a level an uplink into the next. A pair runs at its
slowest link, so a link that carried a fast pair is sound; the fewest others that lie on every slow pair are to blame.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from math import log

import numpy as np

from shardwise.spec.cluster import Cluster

Link = tuple[str, int]
"""kind and number: a node's own link, or the uplink of a block of the level so called"""
SLOW = 0.8
"""part of the reference below which a pair counts as slow"""
REFERENCE = 0.9
"""quantile of all pairs that is taken as what a sound one gives"""
MOST_TOGETHER = 3
"""slow links that are looked for exhaustively; beyond, one after another"""
MOST_TRIED = 40


@dataclass(frozen=True)
class Pair:
    a: str
    b: str
    bytes_per_s: float


@dataclass(frozen=True)
class SlowLink:
    name: str
    bytes_per_s: float
    """the best that any pair got through it"""
    part: float
    """of what a sound link gives"""
    pairs: int
    """slow pairs that run over it"""
    or_else: tuple[str, ...]
    """links that would explain the same pairs as well"""


@dataclass(frozen=True)
class PairDiagnosis:
    reference: float
    """bytes/s of a sound pair"""
    slow_pairs: tuple[Pair, ...]
    links: tuple[SlowLink, ...]
    unexplained: tuple[Pair, ...]
    """slow although every link between them carried a fast pair: a path of their own (hashing, a bad route)"""


def rounds(nodes: Sequence[str]) -> list[list[tuple[str, str]]]:
    """ceil(log2 n) rounds of disjoint pairs: in round k with the node whose number differs in bit k."""
    count = len(nodes)
    return [
        [(nodes[i], nodes[i ^ (1 << bit)]) for i in range(count) if i < i ^ (1 << bit) < count]
        for bit in range((count - 1).bit_length())
    ]


def path(cluster: Cluster, first: int, second: int) -> list[Link]:
    """(kind of link, number) between two nodes: their own links, and uplinks of the blocks they do not share."""
    links, block = [("node", first), ("node", second)], 1
    for level in cluster.levels[1:-1]:
        block *= level.degree
        if first // block != second // block:
            links += [(level.name, first // block), (level.name, second // block)]
    return links


def diagnose(pairs: Sequence[Pair], nodes: Sequence[str], cluster: Cluster) -> PairDiagnosis:
    """`nodes`: in the order in which the cluster's levels count them."""
    place = {name: index for index, name in enumerate(nodes)}
    missing = sorted({end for pair in pairs for end in (pair.a, pair.b)} - set(place))
    if missing:
        raise ValueError(
            f"pairs: {missing[0]!r} is not among the {len(nodes)} hosts; write every host, in fabric order"
        )
    paths = [path(cluster, place[pair.a], place[pair.b]) for pair in pairs]
    due = np.array([_share(cluster, links) for links in paths])
    rates = np.array([pair.bytes_per_s for pair in pairs]) / due
    reference = float(np.quantile(rates, REFERENCE))
    best: dict[Link, float] = {}
    for links, rate in zip(paths, rates, strict=True):
        best |= {link: max(best.get(link, 0.0), float(rate)) for link in links}
    slow = [index for index, rate in enumerate(rates) if rate < SLOW * reference]
    suspects = {index: {link for link in paths[index] if best[link] < SLOW * reference} for index in slow}
    blamed = _fewest({index: links for index, links in suspects.items() if links}, best, rates, reference)
    found = [_slow_link(link, best, suspects, reference, nodes, cluster) for link in blamed]
    return PairDiagnosis(
        reference=reference,
        slow_pairs=tuple(pairs[index] for index in slow),
        links=tuple(sorted(found, key=lambda link: link.part)),
        unexplained=tuple(pairs[index] for index, links in suspects.items() if not links),
    )


def _share(cluster: Cluster, links: Sequence[Link]) -> float:
    """Of a node's own rate, what an oversubscribed level leaves to each of its pairs."""
    crossed = {kind for kind, _ in links}
    own = cluster.levels[1].usable_bandwidth if len(cluster.levels) > 1 else 1.0
    above = zip(cluster.levels[1:-1], cluster.levels[2:], strict=True)
    return min([1.0, *(upper.usable_bandwidth / own for lower, upper in above if lower.name in crossed)])


def _fewest(
    suspects: dict[int, set[Link]], best: dict[Link, float], rates: Sequence[float], sound: float
) -> tuple[Link, ...]:
    """The fewest links that lie on every slow pair; of as few, those whose rates come closest to the pairs'."""
    if not suspects:
        return ()
    blamed: list[Link] = []
    left = dict(suspects)
    while len(links := sorted({link for each in left.values() for link in each})) > MOST_TRIED:
        left = _blame_most(left, blamed)
    for count in range(1, MOST_TOGETHER + 1):
        covers = [found for found in combinations(links, count) if all(set(found) & each for each in left.values())]
        if left and covers:
            return (*blamed, *min(covers, key=lambda found: (_misfit(found, left, best, rates, sound), found)))
    while left:
        left = _blame_most(left, blamed)
    return tuple(blamed)


def _blame_most(left: dict[int, set[Link]], blamed: list[Link]) -> dict[int, set[Link]]:
    """Blames the link that lies on most slow pairs; returns the pairs it does not explain."""
    counts = Counter(link for each in left.values() for link in each)
    most = min(counts, key=lambda link: (-counts[link], link))
    blamed.append(most)
    return {index: each for index, each in left.items() if most not in each}


def _misfit(
    blamed: Sequence[Link], suspects: dict[int, set[Link]], best: dict[Link, float],
    rates: Sequence[float], sound: float,
) -> float:  # fmt: skip
    """Squares of log(explained / measured) over the slow pairs, links at the best they showed."""
    total = 0.0
    for index, links in suspects.items():
        explained = min([sound, *(best[link] for link in blamed if link in links)])
        total += log(explained / rates[index]) ** 2
    return round(total, 9)


def _slow_link(
    link: Link, best: dict[Link, float], suspects: dict[int, set[Link]],
    reference: float, nodes: Sequence[str], cluster: Cluster,
) -> SlowLink:  # fmt: skip
    mine = [links for links in suspects.values() if link in links]
    others = sorted(set.intersection(*mine) - {link})
    return SlowLink(
        name=_name(link, nodes, cluster), bytes_per_s=best[link], part=best[link] / reference, pairs=len(mine),
        or_else=tuple(_name(other, nodes, cluster) for other in others),
    )  # fmt: skip


def _name(link: Link, nodes: Sequence[str], cluster: Cluster) -> str:
    kind, number = link
    if kind == "node":
        return f"host link of {nodes[number]}"
    block = 1
    for level in cluster.levels[1:]:
        block *= level.degree
        if level.name == kind:
            break
    inside = nodes[number * block : (number + 1) * block]
    return f"uplink of {kind} {number} ({inside[0]} .. {inside[-1]})"
