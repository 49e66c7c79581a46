"""An InfiniBand fabric as its own tools see it: what `ibnetdiscover` prints, and the systems and links of UFM as JSON.

UFM: the answers of /ufmRest/resources/systems and /ufmRest/resources/links (REST API guide 6.19), put together as
{"systems": [...], "links": [...]}. A host is known by the first word of its cards' description, such as "node7 HCA-1".
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from shardwise.fabric.hostlist import MOST_HOSTS
from shardwise.fabric.site import Site, site_of_cables
from shardwise.fields import Fields, list_of, mapping_of
from shardwise.importers.slurm_topology import named

MOST_LINKS = 2_000_000
_HEAD = re.compile(r'^(Switch|Ca|Rt)\s+\d+\s+"([SHR]-[0-9a-fA-F]+)"\s*#\s*"([^"]*)"')
_PORT = re.compile(r'^\[\d+\](?:\([0-9a-fA-F]+\))?\s+"([SHR]-[0-9a-fA-F]+)"\[\d+\]')
WANTED_UFM = '{"systems": [...], "links": [...]} as UFM\'s REST API answers them'


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
                raise ValueError(f"{where}, line {number}: {line[:60]!r} is no port; write what ibnetdiscover prints")
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
        document = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"{where}: it is no JSON ({error}); write {WANTED_UFM}") from None
    fields = Fields(mapping_of(document, where, WANTED_UFM), where)
    switches: dict[str, str] = {}
    hosts: dict[str, str] = {}
    for row in _rows(fields.value("systems", WANTED_UFM), f"{where}: systems"):
        guid = row.text("system_guid", default="") or row.text("guid")
        name, kind = row.text("system_name", default=guid), row.text("type", default="").lower()
        if kind in ("switch", "host", "computer"):
            (switches if kind == "switch" else hosts)[guid] = f"switch {name}" if kind == "switch" else name.split()[0]
    cables = []
    for row in _rows(fields.value("links", WANTED_UFM), f"{where}: links"):
        ends = row.text("source_guid"), row.text("destination_guid")
        if ends[0] != ends[1]:
            cables.append(ends)
    known = [each for each in cables if all(end in switches or end in hosts for end in each)]
    return _site(switches, hosts, known, where, "UFM")


def _rows(value: Any, where: str) -> Iterable[Fields]:
    rows = list_of(value, where, "a list of objects")
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
