"""What the switches and links of a tree carry, tier by tier, for the picture of the fabric."""

import numpy as np

from shardwise.arrays import Floats, Ints
from shardwise.fabric.step import StepLoad
from shardwise.fabric.tree import Tree
from shardwise.report.fabric_report import FabricMap, MapLink, MapRow

MOST = 32
"""boxes of a row that are kept: of a longer row every so manyth"""


def map_of(load: StepLoad, step_s: float) -> FabricMap | None:
    """None for a fabric that is no tree."""
    tree = load.prices.fabric
    if not isinstance(tree, Tree):
        return None
    shares = load.busy_s / step_s
    rows = _rows(tree, shares)
    links = [link for place in range(len(rows) - 1) for link in _links(tree, shares, rows, place)]
    worst = load.busiest()
    busiest = f"busiest: {tree.links.name_of(worst)}, {shares[worst]:.1%} of the step" if worst >= 0 else ""
    return FabricMap(rows=tuple(rows), links=tuple(links), most=float(shares.max()),
                     busiest=busiest or "nothing is sent")  # fmt: skip


def _rows(tree: Tree, shares: Floats) -> list[MapRow]:
    """Switches from the top, then nodes, then what is inside them."""
    rows = []
    for number in range(len(tree.tiers) - 1, -1, -1):
        tier = tree.tiers[number]
        count = -(-tree.gpus // tier.block) * tier.switches
        many = tier.built // max(tier.switches, 1)
        name = tier.name if many == 1 else f"{tier.name} (x{many})"
        rows.append(_row(name, _switch_loads(tree, shares, number, count)))
    nodes = int(tree.node[-1]) + 1
    inside = np.zeros(nodes)
    np.maximum.at(inside, tree.node, np.maximum(*(shares[_group(tree, g)] for g in (0, 1))))
    rows.append(_row(f"{tree.links.tiers[0]} in nodes", inside))
    return rows


def _row(name: str, loads: Floats) -> MapRow:
    shown = range(0, len(loads), -(-len(loads) // MOST))
    return MapRow(name=name, shown=tuple(shown), shares=tuple(loads[list(shown)].tolist()), total=len(loads))


def _group(tree: Tree, group: int) -> slice:
    return slice(tree.offsets[group], tree.offsets[group + 1])


def _below(tree: Tree, number: int) -> list[tuple[Ints, Ints, slice]]:
    """Links between a tier and what is under it, up and down: (box below, box of the tier, links)."""
    if number == 0:
        gpu = np.arange(tree.gpus)
        leaf = gpu // tree.tiers[0].block * tree.tiers[0].switches + tree.rail
        return [(tree.node, leaf, _group(tree, group)) for group in (2, 3)]
    lower, tier = tree.tiers[number - 1], tree.tiers[number]
    first = 4 + 2 * (number - 1)
    place = np.arange(tree.offsets[first + 1] - tree.offsets[first])
    child, choice = place // tier.fan, place % tier.fan
    block, switch = child // lower.switches, child % lower.switches
    above = switch * tier.fan + choice if tier.planes else choice
    top = block * lower.block // tier.block * tier.switches + above
    return [(child, top, _group(tree, group)) for group in (first, first + 1)]


def _switch_loads(tree: Tree, shares: Floats, number: int, count: int) -> Floats:
    found = np.zeros(count)
    for _, top, links in _below(tree, number):
        np.maximum.at(found, top, shares[links])
    return found


def _links(tree: Tree, shares: Floats, rows: list[MapRow], place: int) -> list[MapLink]:
    """From the boxes of a row to those under it; links between the same two boxes are one."""
    above = {box: at for at, box in enumerate(rows[place].shown)}
    under = {box: at for at, box in enumerate(rows[place + 1].shown)}
    worst: dict[tuple[int, int], float] = {}
    for below, top, links in _below(tree, len(tree.tiers) - 1 - place):
        for a, b, share in zip(below.tolist(), top.tolist(), shares[links].tolist(), strict=True):
            if a in under and b in above:
                worst[a, b] = max(worst.get((a, b), 0.0), share)
    return [
        MapLink(row=place, upper=above[b], lower=under[a], share=share) for (a, b), share in worst.items()
    ]  # fmt: skip
