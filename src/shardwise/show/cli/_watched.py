"""What `watch` looks at, again and again: records of ranks, or a log of any known form."""

import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from time import time

from msgspec.structs import replace

from shardwise.answers._likely import likely_causes
from shardwise.answers._why_question import RunAsMeant
from shardwise.answers.watch import WatchAnswer, status_facts, step_text, watch_answer
from shardwise.measured.diagnose.causes import Cause
from shardwise.measured.diagnose.counters import CounterSeries, counter_causes
from shardwise.measured.diagnose.health.alarms import Alarms
from shardwise.measured.diagnose.health.found import Health, health_of
from shardwise.measured.diagnose.health.status import RunStatus, silent_after, status_of
from shardwise.measured.diagnose.logged import RunLog
from shardwise.measured.diagnose.postmortem import diagnose
from shardwise.measured.diagnose.records import RankRecords, RunRecords
from shardwise.measured.diagnose.telemetry import telemetry_causes
from shardwise.measured.record.step import RecordHead, StepRecord
from shardwise.programs.importers.run_files import read_run_file
from shardwise.programs.importers.step_records import read_records, record_files
from shardwise.report.watch_page import watch_page

WANTED = "the folder given to run --records, or the log of a run"


@dataclass(frozen=True)
class Look:
    run: RunRecords
    health: Health
    status: RunStatus
    causes: tuple[Cause, ...]
    at_s: float

    @property
    def line(self) -> str:
        """For a terminal while watching."""
        return f"step {self.status.last_step:,}, {self.status.state}: {step_text(self.status)}"[:150]

    def answer(self, alarms: Alarms, ran: RunAsMeant | None) -> WatchAnswer:
        likely = likely_causes(ran, self.status.step_s)
        return watch_answer(self.run, self.health, self.status, alarms.up, alarms.count, likely)


def page_of(look: Look, causes: Sequence[Cause], counters: Sequence[CounterSeries]) -> str:
    grid = look.health.grid
    at = {step.step: step.at_s for step in look.run.ranks[min(look.run.ranks)].steps}
    times = [] if grid is None else [at.get(step, 0.0) for step in grid.step.tolist()]
    facts = [(name, str(value)) for name, value in status_facts(look.status)]
    return watch_page(look.run.name, look.status, facts, grid, causes, counters, times)


def look_at(
    path: Path, ran: RunAsMeant | None, counters: tuple[CounterSeries, ...], *, seen_alive: bool = True
) -> Look:
    """`seen_alive`: it was watched before; a log does not say when it is over, and one that is old is no silent run."""
    now = time()
    run = _records(path)
    if ran is not None:
        run = _with_prediction(run, ran)
    health = health_of(run)
    status = status_of(run, health, now)
    causes = [*_failed(run, health), *health.causes, *counter_causes(counters), *telemetry_causes(counters)]
    if path.is_file() and not seen_alive and status.state == "silent":
        status = replace(status_of(run, health, run.last_at_s), state="a log")  # time since then is not the run's
    if status.state == "silent" and not any(cause.code in ("silent", "killed") for cause in causes):
        causes.insert(0, _who_is_silent(run, status))
    return Look(run, health, status, tuple(causes), now)


def _records(path: Path) -> RunRecords:
    if path.is_dir():
        files = record_files(path)
        if not files:
            raise ValueError(f"run: {str(path)!r} holds no records of ranks; write {WANTED}")
        return read_records(files, path.name)
    found = read_run_file(path)
    if not isinstance(found, RunLog):
        raise ValueError(f"run: {path.name} is not a log of steps; write {WANTED}")
    if found.damaged:
        raise ValueError(f"run: {path.name}: {found.damaged}; write {WANTED}")
    return of_log(found, path.stat().st_mtime)


def of_log(log: RunLog, written_s: float) -> RunRecords:
    """A log as the record of one rank: whole steps, with what it says of data and saves. Its lines may bear the time of
    any zone; the last was written when the file was."""
    at, steps = 0.0, list[StepRecord]()
    for place, step in enumerate(log.steps):
        seconds = step.seconds or (1 / step.steps_per_s if step.steps_per_s else None)
        if seconds is None:
            continue
        at = step.at_s if step.at_s is not None else at + seconds
        peak = None if step.peak_bytes is None else int(step.peak_bytes)
        steps.append(StepRecord(
            step=step.step if step.step is not None else place + 1, at_s=at, step_s=seconds, data_s=step.data_s,
            save_s=step.save_s, peak_bytes=peak, loss=step.loss,
        ))  # fmt: skip
    if not steps:
        raise ValueError(
            f"run: {log.name} states rates, not the time of a step; write one that does, or records (run --records)"
        )
    later = written_s - steps[-1].at_s
    steps = [replace(step, at_s=step.at_s + later) for step in steps]
    head = RecordHead(program=log.program, device="unknown", at_s=steps[0].at_s - steps[0].step_s)
    return RunRecords(log.name, {0: RankRecords((head,), tuple(steps), (), None)})


def _with_prediction(run: RunRecords, ran: RunAsMeant) -> RunRecords:
    expected = ran.expected
    told = {"predicted_step_s": expected.step_s, "predicted_low_s": expected.low_s,
            "predicted_high_s": expected.high_s}  # fmt: skip
    ranks = {
        number: RankRecords((*rank.heads[:-1], replace(rank.head, **told)), rank.steps, rank.events, rank.end)
        for number, rank in run.ranks.items()
    }
    return RunRecords(run.name, ranks, run.launcher)


def _failed(run: RunRecords, health: Health) -> list[Cause]:
    slow = set(health.causes)
    return [cause for cause in diagnose(run, health, (), (), ()).causes if cause not in slow]


def _who_is_silent(run: RunRecords, status: RunStatus) -> Cause:
    """Of ranks on this machine the system knows more than their silence."""
    told = f"no sign of any rank for {status.silent_s:,.0f} s, a step takes {status.step_s or 0:,.3g} s"
    for number, rank in run.ranks.items():
        state = _process(rank.head)
        if state:
            return Cause(code="killed" if state == "gone" else "silent", seconds=0.0, where=f"rank {number}",
                         rank=number, evidence=f"its process is {state}; {told}")  # fmt: skip
    behind = min(run.ranks, key=lambda number: run.ranks[number].last_step)
    first = run.ranks[behind].last_step < status.last_step
    return Cause(code="silent", seconds=0.0, where=f"rank {behind}" if first else "all ranks",
                 rank=behind if first else None, evidence=told)  # fmt: skip


def _process(head: RecordHead) -> str:
    """stopped or gone; empty: it runs, or is not to be seen from here."""
    if head.host != socket.gethostname() or head.pid <= 0 or not os.path.isdir("/proc/self"):
        return ""
    try:
        state = Path(f"/proc/{head.pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return "gone"
    return {"T": "stopped", "t": "stopped", "Z": "gone", "X": "gone"}.get(state, "")


def is_over(look: Look, patience_s: float) -> bool:
    return look.run.ended or look.status.silent_s > max(patience_s, silent_after(look.status.step_s))
