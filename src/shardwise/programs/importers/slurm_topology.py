"""Slurm's description of its network: topology.conf and topology.yaml, as trees of switches or blocks of nodes.

Names and meaning are those of topology.conf(5) and topology.yaml(5) of Slurm 25.05.
"""

import re
from collections.abc import Iterable, Mapping, Sequence

from shardwise.fabric.hostlist import MOST_HOSTS, first_twice, hosts_of
from shardwise.fabric.site import Site, site_of_cables, site_of_columns
from shardwise.fields import Fields, list_of, mapping_of
from shardwise.spec.plain_yaml import parse_yaml

FORM = "Slurm topology"
EXAMPLE = "lines such as 'SwitchName=leaf1 Nodes=node[001-016]' and 'SwitchName=spine Switches=leaf[1-4]'"
MOST_DEPTH = 8
"""of switches above each other"""
_SETTING = re.compile(r"(\w+)=(\S+)")
_KNOWN = ("switchname", "blockname", "nodes", "switches", "linkspeed", "blocksizes", "children")


def is_slurm_topology(text: str) -> bool:
    return re.search(r"^\s*(SwitchName|BlockName)=", text, re.IGNORECASE | re.MULTILINE) is not None


def site_from_topology_conf(text: str, where: str) -> Site:
    switches: dict[str, tuple[str, str]] = {}
    blocks: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        at = f"{where}, line {number}"
        settings = _settings(line.partition("#")[0], at)
        if "switchname" in settings:
            name = settings["switchname"]
            if name in switches:
                raise ValueError(f"{at}: switch {name!r} is there already; write each once")
            switches[name] = settings.get("nodes", ""), settings.get("switches", "")
        elif "blockname" in settings:
            blocks[settings["blockname"]] = settings.get("nodes", "")
        elif settings and "blocksizes" not in settings:
            raise ValueError(f"{at}: {line.strip()[:60]!r} names no switch or block; write {EXAMPLE}")
    if switches and blocks:
        raise ValueError(f"{where}: it has switches and blocks; write a file for one topology plugin")
    return _site_of_blocks(blocks, where) if blocks else _site_of_switches(switches, where)


def _settings(line: str, at: str) -> dict[str, str]:
    rest = _SETTING.sub("", line).strip()
    found = {name.lower(): value for name, value in _SETTING.findall(line)}
    unknown = [name for name in found if name not in _KNOWN]
    if rest or unknown:
        raise ValueError(f"{at}: {(rest or unknown[0])[:60]!r} is not understood; write {EXAMPLE}")
    return found


def site_from_topology_yaml(text: str, where: str) -> Site:
    """The topology that is the cluster's default, or the first."""
    wanted = "a list of topologies, each with 'topology:' and 'tree:' or 'block:'"
    rows = [mapping_of(row, where, wanted) for row in list_of(parse_yaml(text, where), where, wanted)]
    if not rows:
        raise ValueError(f"{where}: it lists no topology; write {wanted}")
    chosen = next((row for row in rows if str(row.get("cluster_default", "")).lower() == "true"), rows[0])
    fields = Fields(chosen, where)
    if fields.has("tree"):
        rows_of = fields.section("tree").sections("switches", "'switch:' with 'nodes:' or 'children:'", most=MOST_HOSTS)
        switches = {
            row.text("switch"): (
                row.text("nodes", default="", longest=1 << 20), row.text("children", default="", longest=1 << 20)
            )
            for row in rows_of
        }  # fmt: skip
        return _site_of_switches(switches, where)
    blocks = fields.section("block", wanted).sections("blocks", "'block:' with 'nodes:'", most=MOST_HOSTS)
    return _site_of_blocks({row.text("block"): row.text("nodes", longest=1 << 20) for row in blocks}, where)


def _site_of_blocks(blocks: Mapping[str, str], where: str) -> Site:
    held = {name: hosts_of(nodes, f"{where}: block {name}") for name, nodes in blocks.items()}
    nodes = [node for each in held.values() for node in each]
    _check(nodes, where)
    inside = [name for name, each in held.items() for _ in each]
    return site_of_columns(nodes, {"block": inside}, FORM)


def _site_of_switches(switches: Mapping[str, tuple[str, str]], where: str) -> Site:
    cables: list[tuple[str, str]] = []
    nodes: dict[str, None] = {}
    for name, (below, children) in switches.items():
        if not below and not children:
            raise ValueError(f"{where}: switch {name!r} has neither Nodes nor Switches; write {EXAMPLE}")
        for node in hosts_of(below, f"{where}: switch {name}"):
            nodes[node] = None
            cables.append((_switch(name), node))
        for child in hosts_of(children, f"{where}: switch {name}"):
            if child not in switches:
                raise ValueError(f"{where}: switch {child!r} of {name!r} is described nowhere; add its line")
            cables.append((_switch(name), _switch(child)))
    _check(list(nodes), where)
    _no_circle(switches, where)
    return named(site_of_cables(list(nodes), cables, FORM))


def _switch(name: str) -> str:
    """Switches and nodes may bear the same name."""
    return f"switch {name}"


def named(site: Site) -> Site:
    """The blocks by the names of their switches alone."""
    columns = {
        level.name: [level.names[block].removeprefix("switch ") for block in level.block] for level in site.levels
    }
    return site_of_columns(site.nodes, columns, site.form)


def _no_circle(switches: Mapping[str, tuple[str, str]], where: str) -> None:
    left: Iterable[str] = [name for name, (_, children) in switches.items() if children]
    for _ in range(MOST_DEPTH):
        left = [name for name in left if set(hosts_of(switches[name][1], where)) & set(left)]
        if not left:
            return
    raise ValueError(f"{where}: switch {next(iter(left))!r} lies above itself, or {MOST_DEPTH} deep; write a tree")


def _check(nodes: Sequence[str], where: str) -> None:
    if not nodes:
        raise ValueError(f"{where}: it names no node; write {EXAMPLE}")
    if len(nodes) > MOST_HOSTS:
        raise ValueError(f"{where}: it has {len(nodes):,} nodes; write at most {MOST_HOSTS:,}")
    twice = first_twice(nodes)
    if twice is not None:
        raise ValueError(f"{where}: node {twice!r} lies in two blocks; write each node once")
