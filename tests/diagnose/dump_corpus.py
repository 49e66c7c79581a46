"""Flight recorder dumps with labelled culprits: of gloo ranks of torch 2.13, and as public reports state theirs."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shardwise.measured.diagnose.postmortem import diagnose
from shardwise.measured.diagnose.recorder import RecorderDump, stuck_in
from shardwise.programs.importers.flight_recorder import read_dump

FOLDER = Path(__file__).parent / "dumps"
RECORDED = {"asleep": ("silent", 2), "left": ("silent", 1), "other_op": ("program", 3), "other_size": ("program", 0),
            "chain": ("silent", 3), "ahead": ("silent", 3), "subgroup": ("silent", 1)}  # fmt: skip
"""what the recorded ranks did: slept before a collective, ended, called another operation or size, waited for others"""


@dataclass(frozen=True)
class LabelledDumps:
    source: str
    code: str
    rank: int
    dumps: dict[str, Any]
    """JSON of a rank's dump by its number"""


def stated(op: str, last: dict[int, tuple[int, int]], world: int, sizes: dict[int, int]) -> dict[str, Any]:
    """Dumps of NCCL ranks of one group: number of the last call and of the last that ended, by rank."""
    group = {"0": {"name": "0", "desc": "default_pg", "ranks": str(list(range(world)))}}
    return {str(rank): {
        "version": "2.10", "pg_config": group,
        "pg_status": {"0": {"last_enqueued_collective": called, "last_completed_collective": done}},
        "entries": [{"collective_seq_id": number, "pg_id": 0, "process_group": ["0", "default_pg"], "is_p2p": False,
                     "profiling_name": f"nccl:{op}", "state": "completed" if number <= done else "scheduled",
                     "input_sizes": [[sizes.get(rank, sizes[-1])]]} for number in range(called, max(done - 1, 0), -1)],
    } for rank, (called, done) in last.items()}  # fmt: skip


def labelled() -> Iterator[LabelledDumps]:
    for name, (code, rank) in RECORDED.items():
        dumps = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
        yield LabelledDumps(f"torch 2.13, gloo: {name}", code, rank, dumps)
    reports = [
        ("MiaAI-Lab/DeepSeek-v4-Flash-DSpark-2x-DGX-Spark#132: torchfrtrace reports rank 0 missing", "silent", 0,
         stated("_all_gather_base", {0: (288685, 288685), 1: (288686, 288685)}, 2, {-1: 64})),
        ("pytorch/pytorch#140563: sizes of ranks 22 and 110 do not match", "program", 22,
         stated("all_reduce", dict.fromkeys(range(128), (39, 38)), 128, {-1: 1025, 22: 262144, 110: 262144})),
        ("pytorch/pytorch#196968: the rank that raised writes no dump", "silent", 1,
         stated("all_reduce", {0: (2, 1)}, 2, {-1: 64})),
    ]  # fmt: skip
    for source, code, rank, dumps in reports:
        yield LabelledDumps(source, code, rank, dumps)


def named(case: LabelledDumps, folder: Path) -> tuple[str, int | None]:
    """(kind, rank) that `doctor` names first."""
    read: list[RecorderDump] = []
    for rank, dump in case.dumps.items():
        path = folder / f"nccl_trace_rank_{rank}.json"
        path.write_text(json.dumps(dump), encoding="utf-8")
        read.append(read_dump(path))
    causes = diagnose(None, None, stuck_in(read), (), ()).causes
    return (causes[0].code, causes[0].rank) if causes else ("", None)
