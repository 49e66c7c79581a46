"""Records that ranks wrote while they trained (`shardwise.measured.record`): a folder of `rank-00000.jsonl`."""

import math
import re
from collections.abc import Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from shardwise.bounded import check_cells
from shardwise.measured.diagnose.logged import MOST_STEPS
from shardwise.measured.diagnose.records import RankRecords, RunRecords
from shardwise.measured.record.step import FORM, RecordHead, RecordLine, RunEnd, RunEvent, StepRecord
from shardwise.measured.record.writer import LAUNCHER
from shardwise.programs.importers._file import read_bytes
from shardwise.programs.importers.room import Room

FILE = re.compile(rf"(?:rank-\d{{5,9}}|{LAUNCHER})\.jsonl")
MOST_RANKS = 100_000
_LINE = msgspec.json.Decoder(RecordLine)
_STEP = msgspec.json.Decoder(StepRecord)


def record_files(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if FILE.fullmatch(path.name) and path.is_file())
    except OSError:
        return []


def read_records(files: Sequence[Path], name: str) -> RunRecords:
    """What is no line of a record is passed over: the last one may be half written."""
    ranks: dict[int, RankRecords] = {}
    launcher: list[RunEvent] = []
    room = Room()
    for number, path in enumerate(files[:MOST_RANKS]):
        raw = read_bytes(path, "run")
        room.check(number, len(files), raw)
        check_cells(raw, path.name, "run")
        heads, steps, events, end = _parsed(raw)
        if heads:
            ranks[heads[-1].rank] = RankRecords(tuple(heads), tuple(steps), tuple(events), end)
        else:
            launcher += events
    if not ranks:
        raise ValueError(f"run: {name} holds no record of a rank; write the folder given to run --records")
    return RunRecords(name, ranks, tuple(launcher))


class _Parsed(Struct):
    heads: list[RecordHead] = []
    steps: list[StepRecord] = []
    events: list[RunEvent] = []
    end: RunEnd | None = None


def _parsed(raw: bytes) -> tuple[list[RecordHead], list[StepRecord], list[RunEvent], RunEnd | None]:
    found = _Parsed()
    for line in raw.splitlines():
        if len(found.steps) >= MOST_STEPS:
            break
        try:
            if line.startswith(b'{"step":'):
                step = _STEP.decode(line)
                found.steps += [step] if _sane(step) else []
                continue
            other = _LINE.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            continue
        if other.head is not None and other.head.form == FORM and 0 <= other.head.rank < MOST_RANKS:
            found.heads.append(other.head)
            found.end = None
        if other.event is not None and math.isfinite(other.event.at_s):
            found.events.append(other.event)
        if other.end is not None and math.isfinite(other.end.at_s):
            found.end = other.end
    return found.heads, found.steps, found.events, found.end


def _sane(step: StepRecord) -> bool:
    """Another program may write such lines too."""
    seconds = [step.step_s, step.data_s, step.comm_s, step.hidden_s, step.save_s, step.other_s, step.cpu_s,
               step.thread_s, step.pressure_s, step.queued_s, *(step.axes_s or {}).values()]  # fmt: skip
    sizes = [step.peak_bytes, step.held_bytes, *(count for row in step.experts or [] for count in row)]
    return (
        0 <= step.step < 2**53 and 0 <= step.at_s < 1e12
        and all(each is None or 0 <= each < 1e9 for each in seconds)
        and all(each is None or 0 <= each < 2**62 for each in sizes)
        and (step.loss is None or not math.isinf(step.loss))
    )  # fmt: skip
