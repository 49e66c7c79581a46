"""The tree of a fabric as a picture: switches and links coloured by what they carry, the bottleneck named."""

from dataclasses import dataclass
from html import escape
from itertools import pairwise

import numpy as np

from shardwise.fabric.links import Floats, Ints
from shardwise.fabric.step import StepLoad
from shardwise.fabric.tree import Tree

WIDTH, LEFT, ROW, BOX = 1080, 130, 92, 22
MOST = 32
"""boxes of a row that are drawn: from a longer row every so manyth"""
INK, GREY = "#22262b", "#5b6068"


@dataclass(frozen=True)
class _Row:
    name: str
    shown: list[int]
    """numbers of the boxes drawn"""
    loads: Floats
    """of each of them, as a share of the step"""
    total: int

    def x(self, box: int) -> float:
        return LEFT + (self.shown.index(box) + 0.5) * (WIDTH - LEFT - 20) / len(self.shown)


def map_svg(load: StepLoad, step_s: float) -> str:
    """Empty for a fabric that is no tree."""
    tree = load.prices.fabric
    if not isinstance(tree, Tree):
        return ""
    shares = load.busy_s / step_s
    rows = _rows(tree, shares)
    most = float(shares.max()) or 1.0
    body: list[str] = []
    for place in range(len(rows) - 1):
        body += _lines(tree, shares, rows, place, most)
    for place, row in enumerate(rows):
        body += _boxes(row, 40 + place * ROW, most)
    height = 40 + len(rows) * ROW
    worst = load.busiest()
    named = "nothing is sent"
    if worst >= 0:
        named = f"busiest: {tree.links.name_of(worst)}, {shares[worst]:.1%} of the step"
    body.append(f'<text x="{LEFT}" y="{height - 18}" font-size="14" font-weight="600">{escape(named)}</text>')
    body += _scale(most, height - 18)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" '
        f'style="max-width:100%;height:auto" font-family="system-ui, sans-serif" fill="{INK}">'
        "<title>load of the fabric</title>" + "\n".join(body) + "</svg>\n"
    )


def colour(part: float) -> str:
    """From pale blue over amber to red."""
    stops = ((0.0, (221, 232, 242)), (0.5, (240, 180, 70)), (1.0, (193, 18, 31)))
    part = min(max(part, 0.0), 1.0)
    for (low, a), (high, b) in pairwise(stops):
        if part <= high:
            t = (part - low) / (high - low)
            return "#" + "".join(f"{round(x + t * (y - x)):02x}" for x, y in zip(a, b, strict=True))
    return "#c1121f"


def _rows(tree: Tree, shares: Floats) -> list[_Row]:
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


def _row(name: str, loads: Floats) -> _Row:
    shown = list(range(0, len(loads), -(-len(loads) // MOST)))
    return _Row(name, shown, loads[shown], len(loads))


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


def _lines(tree: Tree, shares: Floats, rows: list[_Row], place: int, most: float) -> list[str]:
    """From the boxes of a row to those under it; links between the same two boxes are one line."""
    number = len(tree.tiers) - 1 - place
    upper, lower = rows[place], rows[place + 1]
    below_shown, above_shown = set(lower.shown), set(upper.shown)
    worst: dict[tuple[int, int], float] = {}
    for below, top, links in _below(tree, number):
        for a, b, share in zip(below, top, shares[links], strict=True):
            if a in below_shown and b in above_shown:
                worst[int(a), int(b)] = max(worst.get((int(a), int(b)), 0.0), float(share))
    y1, y2 = 40 + place * ROW + BOX, 40 + (place + 1) * ROW
    return [
        f'<line x1="{upper.x(b):.1f}" y1="{y1}" x2="{lower.x(a):.1f}" y2="{y2}" stroke="{colour(share / most)}" '
        f'stroke-width="{0.5 + 1.0 * share / most:.1f}" stroke-opacity="0.6">'
        f"<title>{share:.2%} of the step</title></line>"
        for (a, b), share in sorted(worst.items(), key=lambda item: item[1])
    ]


def _boxes(row: _Row, top: float, most: float) -> list[str]:
    width = min((WIDTH - LEFT - 20) / len(row.shown) - 2, 60)
    extra = f" of {row.total:,}" if row.total > len(row.shown) else ""
    found = [
        f'<text x="0" y="{top + 10}" font-size="13" font-weight="600">{escape(row.name)}</text>',
        f'<text x="0" y="{top + 26}" font-size="12" fill="{GREY}">{len(row.shown)}{extra}</text>',
    ]
    for box, share in zip(row.shown, row.loads, strict=True):
        x = row.x(box) - width / 2
        found.append(
            f'<rect x="{x:.1f}" y="{top}" width="{width:.1f}" height="{BOX}" rx="3" fill="{colour(share / most)}" '
            f'stroke="{GREY}" stroke-width="0.5"><title>{escape(row.name)} {box}: {share:.2%}</title></rect>'
        )
    return found


def _scale(most: float, y: float) -> list[str]:
    x = WIDTH - 300
    found = [f'<rect x="{x + 10 * i}" y="{y - 12}" width="10" height="14" fill="{colour(i / 19)}"/>' for i in range(20)]
    return [
        *found,
        f'<text x="{x - 6}" y="{y}" font-size="12" text-anchor="end" fill="{GREY}">idle</text>',
        f'<text x="{x + 206}" y="{y}" font-size="12" fill="{GREY}">{most:.1%} busy</text>',
    ]
