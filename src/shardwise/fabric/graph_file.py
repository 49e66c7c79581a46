"""A fabric from a YAML file: GPUs, switches and the links between them.

name: two-leaves
gpus: [h0, h1, h2, h3]
nodes: [[h0, h1], [h2, h3]]        # optional; else every GPU is a node of its own
switches: [leaf0, leaf1, spine]
links:                             # both ways unless `one_way: true`; lists join every pair
  - {from: [h0, h1], to: leaf0, bandwidth: 400 Gbps, latency: 1 us}
  - {from: [leaf0, leaf1], to: spine, bandwidth: 400 Gbps, ports: 2}
"""

from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from shardwise.arrays import Ints
from shardwise.fabric.graph import Graph
from shardwise.fabric.links import Links
from shardwise.fabric.wiring import Wiring
from shardwise.fields import Fields, list_of, mapping_of
from shardwise.registry import closest
from shardwise.spec.plain_yaml import parse_yaml, read_yaml
from shardwise.units import rate_of, seconds_of

MOST_GPUS = 4096
MOST_SWITCHES = 4096
MOST_LINKS = 65_536


def graph_of(path: Path, wiring: Wiring | None = None) -> Graph:
    return graph_from_yaml(read_yaml(path, "graph"), path.name, wiring)


def graph_from_yaml(text: str, where: str = "fabric", wiring: Wiring | None = None) -> Graph:
    example = "'gpus: [h0, h1]', 'switches: [leaf]' and 'links:'"
    fields = Fields(mapping_of(parse_yaml(text, where), where, example), where)
    name = fields.text("name", default=where)
    gpus = _names(fields, "gpus", MOST_GPUS)
    switches = _names(fields, "switches", MOST_SWITCHES) if fields.has("switches") else ()
    names = (*gpus, *switches)
    place = {found: number for number, found in enumerate(names)}
    if len(place) < len(names):
        twice = next(found for found in names if names.count(found) > 1)
        raise ValueError(f"{where}: {twice!r} is named twice; give every GPU and switch a name of its own")
    node = _nodes(fields, place, len(gpus))
    rows = _rows(fields, place)
    fields.done()
    source, target, capacity, latency = (np.array(column) for column in zip(*rows, strict=True))
    inside = _inside(source, target, node)
    links = Links(
        capacity=capacity.astype(np.float64), latency_s=latency.astype(np.float64), level=1 - inside, tier=1 - inside,
        tiers=("inside nodes", "network"), name_of=lambda link: f"{names[source[link]]} > {names[target[link]]}",
    )  # fmt: skip
    return Graph(name, names, node, source, target, links, wiring or Wiring())


def _names(fields: Fields, key: str, most: int) -> tuple[str, ...]:
    found = fields.texts(key, default=None, least=1, most=most)
    if not all(n.strip() and n.isprintable() and len(n) <= 60 for n in found):
        raise fields.refuse(key, f"a list of 1 to {most:,} short names")
    return found


def _nodes(fields: Fields, place: Mapping[str, int], gpus: int) -> Ints:
    node = np.full(gpus, -1, dtype=np.int64)
    if fields.has("nodes"):
        groups = list_of(fields.value("nodes", "[[h0, h1], [h2, h3]]"), fields.at("nodes"), "[[h0, h1], [h2, h3]]")
        for number, group in enumerate(groups):
            for name in list_of(group, fields.at("nodes"), "a list of GPU names"):
                gpu = _vertex(name, place, fields.at("nodes"))
                if gpu >= gpus or node[gpu] >= 0:
                    raise ValueError(
                        f"{fields.at('nodes')}: {name!r} is not a GPU, or is in two nodes; list each GPU once"
                    )
                node[gpu] = number
    alone = np.flatnonzero(node < 0)
    node[alone] = node.max(initial=-1) + 1 + np.arange(len(alone))
    return node


def _rows(fields: Fields, place: Mapping[str, int]) -> list[tuple[int, int, float, float]]:
    rows: list[tuple[int, int, float, float]] = []
    for link in fields.sections("links", "a link as '- {from: h0, to: leaf0, bandwidth: 400 Gbps}'", most=MOST_LINKS):
        ends = [_ends(link, key, place) for key in ("from", "to")]
        capacity = link.quantity("bandwidth", rate_of, "400 Gbps") * link.whole("ports", default=1)
        latency = link.quantity("latency", seconds_of, "1 us") if link.has("latency") else 0.0
        one_way = link.flag("one_way")
        link.done()
        if capacity <= 0:
            raise link.refuse("bandwidth", "a rate above 0, or leave the link out")
        for a, b in product(*ends):
            if a == b:
                raise link.refuse("to", "another name: a link joins two vertices")
            rows.append((a, b, capacity, latency))
            if not one_way:
                rows.append((b, a, capacity, latency))
        if len(rows) > MOST_LINKS:
            raise ValueError(f"{fields.at('links')}: more than {MOST_LINKS:,} directed links; write a smaller fabric")
    return rows


def _ends(link: Fields, key: str, place: Mapping[str, int]) -> list[int]:
    value = link.value(key, f"for example '{key}: h0'")
    names: list[Any] = value if isinstance(value, list) else [value]
    return [_vertex(name, place, link.at(key)) for name in names]


def _vertex(name: object, place: Mapping[str, int], where: str) -> int:
    if not isinstance(name, str) or name not in place:
        raise ValueError(f"{where}: {str(name)[:60]!r} is not a GPU or switch; {closest(str(name), list(place))}")
    return place[name]


def _inside(source: Ints, target: Ints, node: Ints) -> Ints:
    """1 for links between GPUs of a node, or to a switch on which only GPUs of one node of several hang."""
    gpus, top = len(node), int(max(source.max(), target.max())) + 1
    home = np.full(max(top, gpus), -1, dtype=np.int64)
    home[:gpus] = node
    for switch in range(gpus, top):
        near = np.concatenate([source[target == switch], target[source == switch]])
        if len(near) and (near < gpus).all() and (node[near] == node[near[0]]).all():
            home[switch] = node[near[0]]
    shared = np.bincount(node) > 1
    same = (home[source] == home[target]) & (home[source] >= 0)
    return np.asarray(same & shared[np.maximum(home[source], 0)], dtype=np.int64)
