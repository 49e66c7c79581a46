"""How a tensor lies on the ranks of one tensor-parallel group, and what it takes to change that.

    replicated  every rank has all of it                      features  every rank has a slice of the width
    partial     the ranks' tensors add up to it               tokens    every rank has a slice of the rows
                                                              experts   every rank has the rows of its own experts

A value and its gradient both lie in one of these. A tensor that several products read in different layouts is changed
along a tree: each arc once, whoever needs it behind.
"""

from collections.abc import Iterator
from functools import cache
from itertools import combinations, product
from typing import Literal

Layout = Literal["replicated", "features", "tokens", "experts", "partial"]
LAYOUTS: tuple[Layout, ...] = ("replicated", "features", "tokens", "experts", "partial")
Arc = tuple[Layout, Layout]


def collective_of(arc: Arc) -> str | None:
    """The collective that changes one layout into the other; None: every rank has what it needs."""
    start, end = arc
    if start in (end, "replicated") or end == "partial":
        return None  # take a slice; or let the others hold zeros
    if start == "partial":
        return "all_reduce" if end == "replicated" else "reduce_scatter"
    return "all_gather" if end == "replicated" else "all_to_all"


def buffer_share(op: str, ranks: int) -> float:
    """The buffer such a collective counts in (see plugins/collectives/_contract.py), over the whole tensor."""
    return 1.0 / ranks if op == "all_to_all" else 1.0


@cache
def trees(root: Layout, reached: frozenset[Layout], toward_root: bool) -> tuple[tuple[Arc, ...], ...]:
    """All sets of arcs that lead from the root to every layout asked for, or from each of them to the root.

    Values spread from the layout they were computed in; gradients run together into the one the producer needs. Arcs
    stand in the order in which they can be run. Slices are padded with zeros and added up only to save a collective:
    gradients from two layouts, or where there is a partial sum anyway.
    """
    asked = reached - {root}
    others = [layout for layout in LAYOUTS if layout != root]
    found = []
    for count in range(len(asked), len(others) + 1):
        for nodes in combinations(others, count):
            if asked <= set(nodes):
                ways = _parents(root, nodes, asked)
                found += [_directed(way, root, toward_root) for way in ways if _sums(way, root, asked, toward_root)]
    return tuple(found)


def _sums(parents: dict[Layout, Layout], root: Layout, asked: frozenset[Layout], toward_root: bool) -> bool:
    """Whether zeros are added up for a reason."""
    joining = list(parents.values()).count("partial")
    if root == "partial" or not joining:
        return True
    return toward_root and ("partial" in asked or joining > 1)


def _parents(root: Layout, nodes: tuple[Layout, ...], asked: frozenset[Layout]) -> Iterator[dict[Layout, Layout]]:
    """Every tree over the nodes, as the parent of each; a layout nobody asked for must lead on to another."""
    for chosen in product((root, *nodes), repeat=len(nodes)):
        parents = dict(zip(nodes, chosen, strict=True))
        if all(node in chosen for node in nodes if node not in asked) and _leads_to(root, parents):
            yield parents


def _leads_to(root: Layout, parents: dict[Layout, Layout]) -> bool:
    for node in parents:
        for _ in parents:
            node = parents.get(node, root)
        if node != root:
            return False
    return True


def _directed(parents: dict[Layout, Layout], root: Layout, toward_root: bool) -> tuple[Arc, ...]:
    depth = {node: _depth(node, parents, root) for node in parents}
    order = sorted(parents, key=lambda node: (depth[node], LAYOUTS.index(node)), reverse=toward_root)
    return tuple((node, parents[node]) if toward_root else (parents[node], node) for node in order)


def _depth(node: Layout, parents: dict[Layout, Layout], root: Layout) -> int:
    return 0 if node == root else 1 + _depth(parents[node], parents, root)
