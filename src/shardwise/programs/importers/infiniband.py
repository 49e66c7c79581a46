"""An InfiniBand fabric as its own tools see it: what `ibnetdiscover` prints, and the links of UFM as JSON.

UFM: the answer of /ufmRest/resources/links. Its GUIDs are those of cards, so ends are told by their description: of a
port of a switch "name:port", of a card "node7 mlx5_0". A host is known by the first word of it.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from shardwise.bounded import json_of
from shardwise.fabric.hostlist import MOST_HOSTS
from shardwise.fabric.site import Site, site_of_cables
from shardwise.fields import Fields, list_of, mapping_of
from shardwise.programs.importers.slurm_topology import named

MOST_LINKS = 2_000_000
_HEAD = re.compile(r'^(Switch|Ca|Rt)\s+\d+\s+"([SHR]-[0-9a-fA-F]+)"\s*#\s*"([^"]*)"')
_PORT = re.compile(r'^\[\d+\](?:\([0-9a-fA-F]+\))?\s+"([SHR]-[0-9a-fA-F]+)"\[\d+\]')
_SWITCH_PORT = re.compile(r"([^\s:]+):\S+")
INSIDE_SWITCH = "Aggregation Node"
"""of a switch that adds: no host"""
WANTED_UFM = "the list that UFM answers to /ufmRest/resources/links"


def is_ibnetdiscover(text: str) -> bool:
    return re.search(r'^(Switch|Ca)\s+\d+\s+"[SH]-', text, re.MULTILINE) is not None


def site_from_ibnetdiscover(text: str, where: str) -> Site:
    kinds: dict[str, str] = {}
    names: dict[str, str] = {}
    cables: list[tuple[str, str]] = []
    current = ""
    for number, line in enumerate(text.splitlines(), 1):
        head = _HEAD.match(line)
        if head:
            current, kinds[head[2]], names[head[2]] = head[2], head[1], head[3]
        elif not line.strip():
            current = ""
        elif line.startswith("["):
            port = _PORT.match(line)
            if port is None or not current:
                raise ValueError(
                    f"{where}, line {number}: {line[:60]!r} is not a port; write what ibnetdiscover prints"
                )
            cables.append((current, port[1]))
            if len(cables) > MOST_LINKS:
                raise ValueError(f"{where}: more than {MOST_LINKS:,} ports; write a smaller fabric")
    unknown = next((end for cable in cables for end in cable if end not in kinds), None)
    if unknown is not None:
        raise ValueError(f"{where}: {unknown!r} is joined but not described; is the file whole?")
    switches = {guid: f"switch {_unique(names, guid)}" for guid, kind in kinds.items() if kind == "Switch"}
    hosts = {guid: names[guid].split()[0] for guid, kind in kinds.items() if kind == "Ca" and names[guid].split()}
    return _site(switches, hosts, cables, where, "ibnetdiscover")


def _unique(names: Mapping[str, str], guid: str) -> str:
    """The description up to its first semicolon or blank, which says what the switch is called; else its GUID."""
    words = re.split(r"[;:\s]+", names[guid])
    told = [word for word in words if word and word.upper() not in ("MF0", "QUANTUM", "MELLANOX", "TECHNOLOGIES")]
    return f"{told[0]} ({guid[-6:]})" if told else guid


def site_from_ufm(raw: bytes, where: str) -> Site:
    try:
        document = json_of(raw)
    except ValueError as error:
        raise ValueError(f"{where}: it is not JSON ({error}); write {WANTED_UFM}") from None
    if isinstance(document, dict):
        document = document.get("links")
    called: dict[str, bool] = {}
    cables = []
    for row in _rows(document, f"{where}: links"):
        told = [row.text(f"{end}_port_node_description", example="node7 mlx5_0") for end in ("source", "destination")]
        if any(INSIDE_SWITCH in each for each in told):
            continue
        ends = [_end(each) for each in told]
        called |= dict(ends)
        cables.append((ends[0][0], ends[1][0]))
    switches = {name: name for name, is_switch in called.items() if is_switch}
    return _site(switches, {name: name for name in called if name not in switches}, cables, where, "UFM")


def _end(description: str) -> tuple[str, bool]:
    """(name, is it a switch)"""
    port = _SWITCH_PORT.fullmatch(description)
    return (f"switch {port[1]}", True) if port else (description.split()[0], False)


def _rows(value: Any, where: str) -> Iterable[Fields]:
    rows = list_of(value, where, WANTED_UFM)
    if len(rows) > MOST_LINKS:
        raise ValueError(f"{where}: more than {MOST_LINKS:,} entries; write a smaller fabric")
    for number, row in enumerate(rows):
        yield Fields(mapping_of(row, f"{where}[{number}]", "an object"), f"{where}[{number}]")


def _site(
    switches: Mapping[str, str], hosts: Mapping[str, str], cables: Iterable[tuple[str, str]], where: str, form: str
) -> Site:
    called = {**switches, **hosts}
    ends = {(called[one], called[other]) for one, other in cables if one in called and other in called}
    joined = {end for pair in ends for end in pair}
    nodes = [name for name in dict.fromkeys(hosts.values()) if name in joined]
    if not nodes:
        raise ValueError(f"{where}: no host hangs on a switch in it; write the whole fabric")
    if len(nodes) > MOST_HOSTS:
        raise ValueError(f"{where}: it has {len(nodes):,} hosts; write at most {MOST_HOSTS:,}")
    return named(site_of_cables(nodes, sorted(ends), form))
