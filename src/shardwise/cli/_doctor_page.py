"""What `doctor` prints."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from shardwise.cli._html import draw
from shardwise.cli._output import Cell, print_facts, print_gap, print_notes, print_table
from shardwise.diagnose.causes import CURES, Cause
from shardwise.diagnose.health.found import Health
from shardwise.diagnose.postmortem import Diagnosis, SavedState
from shardwise.importers.run_folder import RunFolder
from shardwise.units import time_text

SHOWN = 12
"""lines of what happened; JSON has all"""


@dataclass(frozen=True)
class DoctorAnswer:
    folder: Path
    found: RunFolder
    health: Health | None
    diagnosis: Diagnosis
    saved: Sequence[SavedState]


def show(answer: DoctorAnswer) -> None:
    found = answer.diagnosis
    facts: list[tuple[str, Cell]] = [("ended", _ended(answer))]
    if found.causes:
        first = found.causes[0]
        facts.append(("first", _said(first)))
    facts += [("lost", _lost(found)), ("resume", _resume(answer))]
    print_facts(f"{answer.folder}: {'not well' if found.causes else 'nothing found'}", facts)
    if found.causes:
        print_notes([f"{cause.what}{_at(cause)}: {cause.evidence or 'seen'}" for cause in found.causes], title="causes")
        print_notes([f"{cause.what}: {CURES[cause.code]}" for cause in found.causes], title="what to change")
    remarks = answer.health.remarks if answer.health else ()
    print_notes([f"{cause.what}: {cause.evidence}" for cause in remarks], title="outside the run itself")
    rows: list[list[Cell]] = [[_clock(each.at_s), "" if each.rank is None else str(each.rank), each.text]
                              for each in _telling(answer)]  # fmt: skip
    if rows:
        if any(each.at_s is not None for each in found.happened):
            draw(lambda: _events_svg(found))
        print_gap()
        print_table("what happened", ["UTC", "rank", "what"], rows, words=3, breaks=2)
    print_notes(answer.found.read, title="read")
    print_notes(answer.found.left_out[:SHOWN], title="not read")


def _events_svg(found: Diagnosis) -> str:
    from shardwise.charts import chart_svg
    from shardwise.report.course_figure import events_chart

    timed = [(each.at_s, each.rank, each.text) for each in found.happened if each.at_s is not None]
    return chart_svg(events_chart("what happened, and to which rank", timed, _clock(min(at for at, _, _ in timed))))


def data_of(answer: DoctorAnswer) -> dict[str, Any]:
    found = answer.diagnosis
    return {
        "folder": str(answer.folder), "ended": found.ended, "last_step": found.last_step,
        "causes": [cause_data(cause) for cause in found.causes],
        "remarks": [cause_data(cause) for cause in (answer.health.remarks if answer.health else ())],
        "step_s": answer.health.step_s if answer.health else None,
        "lost_steps": found.lost_steps, "lost_s": found.lost_s,
        "resume": None if found.resume is None else {"checkpoint": found.resume.at, "step": found.resume.step},
        "checkpoints": [{"name": each.name, "step": each.step, "damage": each.damage or None} for each in answer.saved],
        "happened": [{"at_s": each.at_s, "rank": each.rank, "what": each.text, "source": each.source}
                     for each in found.happened],
        "read": answer.found.read, "not_read": answer.found.left_out,
    }  # fmt: skip


def cause_data(cause: Cause) -> dict[str, Any]:
    return {"cause": cause.code, "what": cause.what, "rank": cause.rank, "where": cause.where or None,
            "since_step": cause.since, "lost_s": max(cause.excess_s, 0.0), "evidence": cause.evidence or None,
            "cure": CURES[cause.code]}  # fmt: skip


def _telling(answer: DoctorAnswer) -> list[Any]:
    """All of it where it is short; else the beginning of the end."""
    happened = [each for each in answer.diagnosis.happened if not each.text.startswith("saved")]
    return happened[-SHOWN:]


def _ended(answer: DoctorAnswer) -> str:
    found = answer.diagnosis
    words = {"finished": "all steps made", "stopped": "it was asked to end", "failed": "it failed",
             "unknown": "no end is written: it may still go on"}[found.ended]  # fmt: skip
    return f"{words}, step {found.last_step:,}" if found.last_step is not None else words


def _said(cause: Cause) -> str:
    return f"{cause.what}{_at(cause)}: {cause.evidence}"


def _at(cause: Cause) -> str:
    parts = [cause.where, f"since step {cause.since:,}" if cause.since is not None else ""]
    told = ", ".join(part for part in parts if part)
    return f" ({told})" if told else ""


def _lost(found: Diagnosis) -> str:
    if found.lost_steps is None:
        return "not known: no checkpoint was found"
    time = f", {time_text(found.lost_s)} of all ranks" if found.lost_s else ""
    return f"{found.lost_steps:,} steps since the last whole checkpoint{time}"


def _resume(answer: DoctorAnswer) -> str:
    found = answer.diagnosis
    if found.resume is None:
        return "there is no whole checkpoint: start from the beginning" if answer.saved else "no checkpoint was found"
    own = answer.found.records is not None and answer.found.records.head.program == "shardwise run"
    how = "; `shardwise run` with the same flags goes on from it" if own else ""
    return f"{found.resume.name} (step {found.resume.step:,}) is whole{how}"


def _clock(at_s: float | None) -> str:
    return "" if at_s is None else datetime.fromtimestamp(at_s, UTC).strftime("%m-%d %H:%M:%S")
