"""`doctor`: what happened to a run, what it lost, from where it can go on, and what to change."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

from msgspec import Struct

from shardwise.answers.answer import Answer, FactList, Figure, Notes, Part, shown, table
from shardwise.measured.diagnose.causes import CURES, Cause
from shardwise.measured.diagnose.health.found import Health
from shardwise.measured.diagnose.postmortem import Diagnosis, SavedState
from shardwise.programs.importers.run_folder import RunFolder
from shardwise.report.charts import chart_svg
from shardwise.report.course_figure import events_chart
from shardwise.units import time_text

SHOWN = 12
"""lines of what happened; JSON has all"""
ENDED = {"finished": "all steps made", "stopped": "it was asked to end", "failed": "it failed",
         "unknown": "no end is recorded"}  # fmt: skip
OWN = "shardwise run"


def clock_text(at_s: float) -> str:
    return datetime.fromtimestamp(at_s, UTC).strftime("%m-%d %H:%M:%S")


class CauseFinding(Struct, frozen=True, kw_only=True):
    cause: str
    what: str
    rank: int | None
    where: str | None
    since_step: int | None
    lost_s: float
    """of an average step"""
    evidence: str | None
    cure: str

    def __str__(self) -> str:
        since = f"since step {self.since_step:,}" if self.since_step is not None else ""
        place = ", ".join(part for part in (self.where, since) if part)
        return f"{self.what}{f' ({place})' if place else ''}: {self.evidence or 'seen'}"


def cause_finding(cause: Cause) -> CauseFinding:
    return CauseFinding(
        cause=cause.code, what=cause.what, rank=cause.rank, where=cause.where or None, since_step=cause.since,
        lost_s=max(cause.excess_s, 0.0), evidence=cause.evidence or None, cure=CURES[cause.code],
    )  # fmt: skip


class ResumePoint(Struct, frozen=True, kw_only=True):
    checkpoint: str
    """path"""
    step: int | None


class CheckpointFinding(Struct, frozen=True, kw_only=True):
    name: str
    step: int | None
    damage: str | None


class EventLine(Struct, frozen=True, kw_only=True):
    at_s: Annotated[float | None, shown("UTC", clock_text)]
    rank: Annotated[int | None, shown("rank", str)]
    what: Annotated[str, shown("what")]
    source: str


class DoctorAnswer(Answer, frozen=True, kw_only=True):
    folder: str
    program: str | None
    ended: str
    last_step: int | None
    causes: Sequence[CauseFinding]
    """the first is the one to begin with"""
    remarks: Sequence[CauseFinding]
    """outside the run itself"""
    step_s: float | None
    lost_steps: int | None
    lost_s: float | None
    """of all ranks"""
    resume: ResumePoint | None
    checkpoints: Sequence[CheckpointFinding]
    """newest first"""
    happened: Sequence[EventLine]
    read: Sequence[str]
    not_read: Sequence[str]

    @property
    def exit_code(self) -> int:
        return 1 if self.causes else 0

    def parts(self) -> Iterator[Part]:
        step = "" if self.last_step is None else f", step {self.last_step:,}"
        facts = [("ended", f"{ENDED[self.ended]}{step}"), *[("first", str(cause)) for cause in self.causes[:1]]]
        facts += [("lost", self._lost()), ("resume", self._resume())]
        yield FactList(f"{self.folder}: {'not well' if self.causes else 'nothing found'}", facts)
        if self.causes:
            yield Notes([str(cause) for cause in self.causes], "causes")
            yield Notes([f"{cause.what}: {cause.cure}" for cause in self.causes], "what to change")
        if self.remarks:
            yield Notes([str(cause) for cause in self.remarks], "outside the run itself")
        telling = [event for event in self.happened if not event.what.startswith("saved")][-SHOWN:]
        if telling:
            if any(event.at_s is not None for event in self.happened):
                yield Figure(self._events_svg)
            yield table("what happened", telling, words=3, breaks=2, sparse=True)
        for title, lines in (("read", self.read), ("not read", self.not_read[:SHOWN])):
            if lines:
                yield Notes(lines, title)

    def _lost(self) -> str:
        if self.lost_steps is None:
            return "not known: no checkpoint was found"
        time = f", {time_text(self.lost_s)} of all ranks" if self.lost_s else ""
        return f"{self.lost_steps:,} steps since the last whole checkpoint{time}"

    def _resume(self) -> str:
        if self.resume is None:
            none = "there is no whole checkpoint: start from the beginning"
            return none if self.checkpoints else "no checkpoint was found"
        how = f"; `{OWN}` with the same flags goes on from it" if self.program == OWN else ""
        return f"{Path(self.resume.checkpoint).name} (step {self.resume.step:,}) is whole{how}"

    def _events_svg(self) -> str:
        timed = [(event.at_s, event.rank, event.what) for event in self.happened if event.at_s is not None]
        first = clock_text(min(at for at, _, _ in timed))
        return chart_svg(events_chart("what happened, and to which rank", timed, first))


ANSWERS = (DoctorAnswer,)


def doctor_answer(
    folder: Path, found: RunFolder, health: Health | None, diagnosis: Diagnosis, saved: Sequence[SavedState]
) -> DoctorAnswer:
    resume = diagnosis.resume
    return DoctorAnswer(
        folder=str(folder), program=found.records.head.program or None if found.records is not None else None,
        ended=diagnosis.ended, last_step=diagnosis.last_step, causes=[cause_finding(each) for each in diagnosis.causes],
        remarks=[cause_finding(each) for each in (health.remarks if health else ())],
        step_s=health.step_s if health else None, lost_steps=diagnosis.lost_steps, lost_s=diagnosis.lost_s,
        resume=None if resume is None else ResumePoint(checkpoint=resume.at, step=resume.step),
        checkpoints=[CheckpointFinding(name=each.name, step=each.step, damage=each.damage or None) for each in saved],
        happened=[EventLine(at_s=each.at_s, rank=each.rank, what=each.text, source=each.source)
                  for each in diagnosis.happened],
        read=found.read, not_read=found.left_out,
    )  # fmt: skip
