"""`shardwise fabric expect`: measured collectives against what the cluster should give, and the link that is slow."""

import re
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from shardwise.answers.fabric_expect import expect_answer
from shardwise.measured.diagnose.expect import Expectation
from shardwise.measured.diagnose.expect import expect as expectation_of
from shardwise.measured.diagnose.pairs import diagnose, rounds
from shardwise.programs.importers import nccl_tests
from shardwise.programs.importers._file import read_bytes, read_text
from shardwise.programs.importers.link_pairs import pairs_of
from shardwise.show.cli._notes import ALL_GATHER
from shardwise.show.cli._options import Json
from shardwise.show.cli._output import answered
from shardwise.show.cli._target import target_of
from shardwise.spec.cluster import Cluster

MOST_HOSTS = 100_000


def expect(
    file: Annotated[Path | None, Parameter(help="Output of nccl-tests: its text, or the JSON of -J.")] = None,
    /,
    *,
    on: Annotated[str, Parameter(help="The cluster it ran on: dgx-h100:64, 8xh100 or a YAML file.")],
    pairs: Annotated[
        list[Path] | None,
        Parameter(consume_multiple=True, help="Pairs of nodes: a,b,gb_per_s as CSV or JSON, or nccl-tests outputs."),
    ] = None,
    hosts: Annotated[Path | None, Parameter(help="Names of all nodes in fabric order, one a line.")] = None,
    json: Json = False,
) -> int:
    """Is this network as fast as it should be, size by size, and which link is slow (also as --json).

    Without FILE and --pairs: the pairs of nodes to measure. Exit code 1 when something is low.
    """
    cluster = target_of(on)
    run = None if file is None else nccl_tests.parse(read_bytes(file, "file"))
    found = None if run is None else expectation_of(run.points, cluster)
    names = _hosts(hosts)
    measured = pairs_of(pairs) if pairs else []
    if not names and measured:
        names = sorted({end for pair in measured for end in (pair.a, pair.b)}, key=_natural)
    elif not names and run is not None:
        names = list(run.hosts)
    names = names or _numbered(cluster)
    blame = diagnose(measured, names, cluster) if measured else None
    plan = rounds(names) if blame is None and (found is None or found.low) else []
    notes = [ALL_GATHER] if found is not None and _hopper_gathers(cluster, found) else []
    if hosts is None and blame is not None and len(cluster.levels) > 2:
        notes.append("hosts taken in the natural order of their names; write --hosts FILE for the order of the fabric")
    return answered(expect_answer(cluster, found, blame, plan, notes), json)


def _hopper_gathers(cluster: Cluster, found: Expectation) -> bool:
    return cluster.gpu.name.startswith("h100") and any(row.op == "all_gather" for row in found.verdicts)


def _hosts(path: Path | None) -> list[str]:
    if path is None:
        return []
    text = read_text(path, "hosts")
    names = [line.split()[0] for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    if not names or len(names) > MOST_HOSTS or len(set(names)) < len(names):
        raise ValueError(
            f"hosts: {path.name} names {len(names)} hosts, {len(set(names))} of them distinct; write each once"
        )
    return names


def _numbered(cluster: Cluster) -> list[str]:
    count = -(-cluster.gpus // cluster.node_size)
    if count > MOST_HOSTS:
        raise ValueError(
            f"on: {cluster.name} has {count:,} nodes, too many to measure in pairs; write one of at most {MOST_HOSTS:,}"
        )
    return [f"node{number}" for number in range(count)]


def _natural(name: str) -> list[tuple[int, str]]:
    """node-2 before node-10."""
    return [(int(piece) if piece.isdigit() else -1, piece) for piece in re.split(r"(\d{1,9})", name)]
