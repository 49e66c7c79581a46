"""`shardwise collective`: one collective on one cluster - the data sheet's law, fitted time, algorithms, switches."""

from typing import Annotated

import msgspec
from cyclopts import Parameter

from shardwise.cli import _notes
from shardwise.cli._array import array_bytes
from shardwise.cli._groups import CLUSTER
from shardwise.cli._options import Explain, Json
from shardwise.cli._output import Cell, print_facts, print_gap, print_json, print_notes, print_table
from shardwise.cli._target import target_of
from shardwise.spec.cluster import Cluster
from shardwise.studies.collective import (
    AlgorithmTime,
    CollectiveQuestion,
    CollectiveStudy,
    LevelBytes,
    collective_study,
)
from shardwise.units import time_text

H100_GATHER = 2 * 1024 * 16384
"""bytes of the array in a widely read exercise"""


def collective(
    op: Annotated[str, Parameter(help="all_reduce, all_gather, reduce_scatter, all_to_all, broadcast, send.")],
    array: Annotated[str, Parameter(help="The array: bf16[1024,16384], or its bytes: '33.5 MB'.")],
    /,
    *,
    on: Annotated[str, Parameter(group=CLUSTER, help="dgx-h100:1024, 8xh100 or a YAML file: all its GPUs take part.")],
    inner: Annotated[int, Parameter(help="Ways an inner axis cuts the array: groups of ranks that far apart.")] = 1,
    sharp: Annotated[bool, Parameter(help="The network's switches add, where they can.")] = False,
    nvls: Annotated[bool, Parameter(negative="--no-nvls", help="NVLink's switches add, where they can.")] = True,
    explain: Explain = False,
    json: Json = False,
) -> None:
    """One collective: what the data sheet allows, what it takes, by which algorithm, through which switches."""
    cluster, size = target_of(on), array_bytes(array)
    found = collective_study(CollectiveQuestion(op, size, cluster, inner, sharp, nvls))
    notes = _lines(found, cluster, explain)
    if json:
        print_json(msgspec.to_builtins(found) | {"notes": notes})
        return
    written = f"{array.strip()}, " if "[" in array else ""
    groups = f" in {inner:,} groups" if inner > 1 else ""
    print_facts(f"{op} of {written}{_bytes(size)} over {cluster.gpus:,} GPUs{groups}, {cluster.name}", _facts(found))
    print_gap()
    heads = ["algorithm", "time", "latency", "bus GB/s", "slowest level", "taken"]
    print_table("algorithms, by fitted constants", heads, map(_algorithm, found.algorithms), bars=("time",))
    print_gap()
    heads = ["level", "GPUs", "GB/s", "law", "GPU sends", "switch", "least in", "least out"]
    print_table(f"levels; bytes with {found.taken}", heads, map(_level, found.levels))
    print_notes(notes)


def _facts(found: CollectiveStudy) -> list[tuple[str, Cell]]:
    facts: list[tuple[str, Cell]] = []
    if found.law_s is not None:
        facts.append(("data sheet", f"{time_text(found.law_s)}: level {found.law_level} binds"))
    if found.law_in_network_s is not None:
        facts.append(("", f"{time_text(found.law_in_network_s)} where switches add"))
    low, high = found.band
    facts.append(("fitted", f"{time_text(found.seconds)} with {found.taken}: level {found.level} binds; 80% of "
                            f"measured ones between {time_text(found.seconds / (1 + high))} and "
                            f"{time_text(found.seconds / (1 + low))}"))  # fmt: skip
    return facts


def _algorithm(each: AlgorithmTime) -> list[Cell]:
    rate = None if each.bus_bytes_per_s is None else each.bus_bytes_per_s / 1e9
    return [each.algorithm, time_text(each.seconds), time_text(each.latency_s), rate, each.level,
            "unasked" if each.automatic else "if named"]  # fmt: skip


def _level(each: LevelBytes) -> list[Cell]:
    least = (None, None) if each.least_in is None or each.least_out is None else (each.least_in, each.least_out)
    return [each.level, f"{each.gpus:,}", each.bytes_per_s / 1e9, None if each.law_s is None else time_text(each.law_s),
            *(None if size is None else _bytes(size) for size in (each.gpu_sends, each.passes, *least))]  # fmt: skip


def _bytes(size: float) -> str:
    for unit, scale in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size >= scale:
            return f"{size / scale:.3g} {unit}"
    return f"{size:.3g} B"


def _lines(found: CollectiveStudy, cluster: Cluster, explain: bool) -> list[str]:
    notes = [
        "law: bytes over bandwidth of the data sheet, the slowest level, no latency; fitted: latency and rates of "
        "published measurements",
        "switch: bytes through the switches above so many GPUs; least: where switches copy and add, no link carries "
        "anything twice, and what enters or leaves a node passes its switch too",
    ]
    if found.op == "all_to_all":
        notes.append("bytes are of all ranks together, each of which holds its part")
    printed = found.op == "all_gather" and found.bytes == H100_GATHER and cluster.gpus == 8
    if explain and printed and cluster.gpu.name == "h100":
        notes.append(_notes.ALL_GATHER)
    return notes
