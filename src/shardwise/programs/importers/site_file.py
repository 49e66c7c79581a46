"""A site's nodes and switches from whatever file tells them: Slurm, ibnetdiscover, UFM, or a table of nodes."""

import csv
import io
from pathlib import Path

from shardwise.bounded import check_cells
from shardwise.fabric.hostlist import MOST_HOSTS, first_twice, hosts_of
from shardwise.fabric.site import Site, site_of_columns
from shardwise.programs.importers._file import read_bytes
from shardwise.programs.importers.infiniband import is_ibnetdiscover, site_from_ibnetdiscover, site_from_ufm
from shardwise.programs.importers.slurm_topology import (
    is_slurm_topology,
    site_from_topology_conf,
    site_from_topology_yaml,
)
from shardwise.registry import closest

COLUMNS = ("rack", "block", "leaf", "unit", "pod", "spine", "core")
"""levels a table of nodes may tell, from the inside out"""
IGNORED = ("rail", "rails", "gpus", "state")
FORMS = "Slurm's topology.conf or topology.yaml, the output of ibnetdiscover, UFM's JSON, or a nodes.csv"
EXAMPLE = "a table with the columns node and leaf, and rack, pod or spine where there are such"


def site_from(path: Path, field: str = "topology") -> Site:
    where = f"{field} {path.name}"
    raw = read_bytes(path, field)
    if raw[:4096].lstrip()[:1] in (b"{", b"["):
        return site_from_ufm(raw, where)
    try:
        check_cells(raw, path.name, field)
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{where}: it is not text (byte {error.start}); write {FORMS}") from None
    if path.suffix.lower() in (".yaml", ".yml"):
        return site_from_topology_yaml(text, where)
    if is_slurm_topology(text):
        return site_from_topology_conf(text, where)
    if is_ibnetdiscover(text):
        return site_from_ibnetdiscover(text, where)
    if path.suffix.lower() == ".csv" or text.lstrip()[:4].lower() == "node":
        return _site_from_table(text, where)
    raise ValueError(f"{where}: it is none of the files that are read; write {FORMS}")


def _site_from_table(text: str, where: str) -> Site:
    try:
        rows = [row for row in csv.reader(io.StringIO(text), strict=True) if any(cell.strip() for cell in row)]
    except csv.Error as error:
        raise ValueError(f"{where}: it is not a table ({error}); write {EXAMPLE}") from None
    heads = [cell.strip().lower() for cell in rows[0]] if rows else []
    if "node" not in heads or len(set(heads)) < len(heads):
        raise ValueError(f"{where}: its columns are {', '.join(heads)[:80] or 'none'}; write {EXAMPLE}")
    for head in heads:
        if head not in ("node", *COLUMNS, *IGNORED):
            raise ValueError(f"{where}: column {head[:40]!r} is unknown; {closest(head[:40], ['node', *COLUMNS])}")
    told = [name for name in COLUMNS if name in heads]
    if not told:
        raise ValueError(f"{where}: it names no switch of its nodes; write {EXAMPLE}")
    nodes: list[str] = []
    columns: dict[str, list[str]] = {name: [] for name in told}
    for number, row in enumerate(rows[1:], 2):
        cells = dict(zip(heads, map(str.strip, row), strict=False))
        if len(row) != len(heads) or not all(cells.get(name) for name in ("node", *told)):
            raise ValueError(f"{where}, row {number}: {','.join(row)[:60]!r}; write a value for each of its columns")
        named = hosts_of(cells["node"], f"{where}, row {number}")
        nodes += named
        for name in told:
            columns[name] += [cells[name]] * len(named)
        if len(nodes) > MOST_HOSTS:
            raise ValueError(f"{where}: it has more than {MOST_HOSTS:,} nodes; write fewer")
    twice = first_twice(nodes)
    if not nodes or twice is not None:
        raise ValueError(f"{where}: {twice or 'no node'!r} is listed{' twice' if twice else ''}; write each in one row")
    return site_of_columns(nodes, columns, "table of nodes")


def free_nodes(text: str, site: Site) -> list[str]:
    """Names as Slurm writes them, or a file of such; `all`: every node of the topology."""
    if text.strip() == "all":
        return list(site.nodes)
    path = Path(text)
    if len(text) < 4096 and "[" not in text and path.is_file():
        raw = read_bytes(path, "free")
        try:
            text = " ".join(line.partition("#")[0] for line in raw.decode("utf-8-sig").splitlines())
        except UnicodeDecodeError as error:
            raise ValueError(f"free: {path.name!r} is not text (byte {error.start}); write names of nodes") from None
    names = hosts_of(text, "free")
    if not names:
        raise ValueError("free: no node is named; write for example --free 'node[001-016]', or all")
    return names
