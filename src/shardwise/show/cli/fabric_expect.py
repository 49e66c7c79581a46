"""`shardwise fabric expect`: measured collectives against what the cluster should give, and the link that is slow."""

import re
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from shardwise.measured.diagnose.expect import HELD, Expectation, NetworkVerdict
from shardwise.measured.diagnose.expect import expect as expectation_of
from shardwise.measured.diagnose.pairs import SLOW, PairDiagnosis, diagnose, rounds
from shardwise.programs.importers import nccl_tests
from shardwise.programs.importers._file import read_bytes, read_text
from shardwise.programs.importers.link_pairs import pairs_of
from shardwise.show.cli._notes import ALL_GATHER
from shardwise.show.cli._options import Json
from shardwise.show.cli._output import Cell, print_gap, print_json, print_notes, print_table
from shardwise.show.cli._target import target_of
from shardwise.spec.cluster import Cluster

HEADS = ["size", "op", "measured", "expected", "band", "ratio", "verdict", "set by"]
SHOWN_PAIRS = 8
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
    notes = _notes(cluster, found, blame, hosts is None and blame is not None)
    if json:
        print_json(_data(cluster, found, blame, plan, notes))
    else:
        _print(cluster, found, blame, plan, notes)
    return int((found is not None and found.low) or (blame is not None and bool(blame.slow_pairs)))


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


def _print(
    cluster: Cluster, found: Expectation | None, blame: PairDiagnosis | None, plan: list[list[tuple[str, str]]],
    notes: list[str],
) -> None:  # fmt: skip
    if found is not None:
        print_table(f"bus bandwidth against {cluster.name}, GB/s", HEADS, map(_cells, found.verdicts), words=2,
                    bars=("measured", "expected"))  # fmt: skip
    if blame is not None:
        if found is not None:
            print_gap()
        _print_links(blame)
    if plan:
        if found is not None:
            print_gap()
        _print_plan(plan, cluster)
    print_notes(notes)


def _cells(row: NetworkVerdict) -> list[Cell]:
    band = f"{row.low / 1e9:.3g}..{row.high / 1e9:.3g}"
    return [_size(row.bytes), row.op, row.measured / 1e9, row.expected / 1e9, band, row.ratio, row.word, row.level]


def _size(bytes_: float) -> str:
    for unit, scale in (("GiB", 2.0**30), ("MiB", 2.0**20), ("KiB", 2.0**10)):
        if bytes_ >= scale:
            return f"{bytes_ / scale:.4g} {unit}"
    return f"{bytes_:.0f} B"


def _print_links(blame: PairDiagnosis) -> None:
    title = f"pairs: {len(blame.slow_pairs)} below {SLOW:.0%} of {blame.reference / 1e9:.3g} GB/s"
    rows: list[list[Cell]] = [[link.name, link.bytes_per_s / 1e9, link.part, link.pairs] for link in blame.links]
    print_table(title, ["slow link", "GB/s", "of a sound one", "slow pairs"], rows)


def _print_plan(plan: list[list[tuple[str, str]]], cluster: Cluster) -> None:
    rows = []
    for number, each in enumerate(plan, start=1):
        names = ", ".join(f"{a}-{b}" for a, b in each[:SHOWN_PAIRS])
        rows.append([str(number), names + (f" and {len(each) - SHOWN_PAIRS} more" if len(each) > SHOWN_PAIRS else "")])
    print_table("to measure", ["round", "pairs"], rows, words=2)
    print("\nround after round, the pairs of a round at once; then again with --pairs *.json:")
    print("  " + _command(*plan[0][0], cluster).replace(" all_reduce_perf", " \\\n    all_reduce_perf"))


def _command(a: str, b: str, cluster: Cluster) -> str:
    local = cluster.node_size
    return f"mpirun -np {2 * local} -H {a}:{local},{b}:{local} all_reduce_perf -b 1G -e 1G -J {a}_{b}.json"


def _notes(cluster: Cluster, found: Expectation | None, blame: PairDiagnosis | None, ordered: bool) -> list[str]:
    notes = []
    if found is not None:
        low, all_ = sum(row.word == "low" for row in found.verdicts), len(found.verdicts)
        word = f"low ({', '.join(found.low_classes)})" if found.low else "as expected"
        notes.append(f"verdict: {word}, {low} of {all_} sizes below their band")
        if found.latency:
            notes.append("only short messages are low: look at start and steps (CPU governor, launch, GPUDirect)")
        notes += [
            f"suspicious: {each.level}; with {each.part:.2g} of its bandwidth the long messages come out to "
            f"{each.misfit:.0%}" for each in found.suspects if found.low and not found.latency
        ]  # fmt: skip
        notes += [f"closest explanation: {found.explanation}"] if found.explanation else []
        if cluster.gpu.name.startswith("h100") and any(row.op == "all_gather" for row in found.verdicts):
            notes.append(ALL_GATHER)
        notes.append(f"closed form; the band holds {HELD:.0%} of measurements on fabrics left out of the fit")
    if blame is not None:
        for link in blame.links:
            notes += [f"{link.name}: {' or '.join(link.or_else)} would explain the same"] if link.or_else else []
        notes += [
            f"{pair.a}-{pair.b} is slow although each of its links carried a fast pair: look at its route (hashing)"
            for pair in blame.unexplained[:SHOWN_PAIRS]
        ]
        if not blame.slow_pairs:
            notes.append("no pair is slow")
    if ordered and len(cluster.levels) > 2:
        notes.append("hosts taken in the natural order of their names; write --hosts FILE for the order of the fabric")
    return notes


def _data(
    cluster: Cluster, found: Expectation | None, blame: PairDiagnosis | None, plan: list[list[tuple[str, str]]],
    notes: list[str],
) -> dict[str, Any]:  # fmt: skip
    data: dict[str, Any] = {"cluster": cluster.name}
    if found is not None:
        data |= {
            "verdict": "low" if found.low else "ok",
            "sizes": [
                {
                    "op": row.op, "bytes": row.bytes, "measured_bus_bytes_per_s": row.measured,
                    "expected_bus_bytes_per_s": row.expected, "low_bus_bytes_per_s": row.low,
                    "high_bus_bytes_per_s": row.high, "ratio": row.ratio, "verdict": row.word, "level": row.level,
                } for row in found.verdicts
            ],
            "suspects": [
                {"level": each.level, "part_of_bandwidth": each.part, "misfit": each.misfit, "low_sizes": each.sizes}
                for each in found.suspects
            ],
            "explanation": found.explanation or None,
        }  # fmt: skip
    if blame is not None:
        data |= {
            "reference_bytes_per_s": blame.reference,
            "slow_links": [
                {"link": link.name, "bytes_per_s": link.bytes_per_s, "part": link.part, "slow_pairs": link.pairs,
                 "or_else": list(link.or_else)} for link in blame.links
            ],
            "slow_pairs": [[pair.a, pair.b, pair.bytes_per_s] for pair in blame.slow_pairs],
            "unexplained_pairs": [[pair.a, pair.b] for pair in blame.unexplained],
        }  # fmt: skip
    if plan:
        data["rounds"] = [[{"a": a, "b": b, "command": _command(a, b, cluster)} for a, b in each] for each in plan]
    return data | {"notes": notes}
