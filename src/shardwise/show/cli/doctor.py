"""`shardwise why`: after a failed or slow run, what happened first, what was lost, how to go on, what to change."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from shardwise.answers.doctor import DoctorAnswer, doctor_answer
from shardwise.measured.diagnose.causes import Cause
from shardwise.measured.diagnose.counters import counter_causes
from shardwise.measured.diagnose.health.found import health_of
from shardwise.measured.diagnose.pace import pace_of, series_of
from shardwise.measured.diagnose.postmortem import SavedState, diagnose
from shardwise.measured.diagnose.recorder import stuck_in
from shardwise.measured.diagnose.telemetry import telemetry_causes
from shardwise.measured.diagnose.what_if import what_if
from shardwise.programs.importers.run_folder import RunFolder, read_folder
from shardwise.run.runtime.checkpoints.check import check_bytes
from shardwise.run.runtime.checkpoints.folder import found_in, present
from shardwise.run.runtime.checkpoints.manifest import DamagedCheckpoint
from shardwise.show.cli._options import Json
from shardwise.show.cli._output import answered

LEAST = 0.05
"""of a step that a log must lose to something before it is named"""
VERIFIED = 8
"""newest checkpoints whose every byte is read"""


def doctor(
    folder: Annotated[Path, Parameter(help="Folder of the run: records, logs, dumps, checkpoints, counters.")],
    /,
    *,
    checkpoints: Annotated[
        Path | None, Parameter(help="Folder of checkpoints, if it lies elsewhere and the records do not say where.")
    ] = None,
    json: Json = False,
) -> int:
    """What happened to a run: the first cause and its rank, what was lost, from where it can go on, what to change.

    Exit code 1 when something is wrong with it.
    """
    return answered(examined(folder, checkpoints), json)


def examined(folder: Path, checkpoints: Path | None = None) -> DoctorAnswer:
    """What is found in a folder; `checkpoints`: where they lie, if elsewhere."""
    found = read_folder(folder)
    saved = _saved(found, checkpoints)
    health = health_of(found.records) if found.records is not None else None
    seen = (found.records, found.logs, found.dumps, found.lines, found.pipelines, found.counters, saved)
    if not any(seen):
        raise ValueError(
            f"folder: {str(folder)!r} has no files of a run; write one with records (run --records), logs, dumps "
            "of the flight recorder or checkpoints" + (f" ({found.left_out[0]})" if found.left_out else "")
        )
    others = [*_simulated(found), *_logged(found), *counter_causes(found.counters),
              *telemetry_causes(found.counters)]  # fmt: skip
    diagnosis = diagnose(found.records, health, stuck_in(found.dumps), saved, found.lines, others)
    return doctor_answer(folder, found, health, diagnosis, saved)


def _simulated(found: RunFolder) -> list[Cause]:
    """Of traces of a pipeline's pieces, by simulating them again without each suspect."""
    causes = [what_if(trace).cause for _, trace in found.pipelines]
    return [cause for cause in causes if cause is not None]


def _logged(found: RunFolder) -> list[Cause]:
    """What steps of logs lose over time, where no rank left records."""
    causes: list[Cause] = []
    for log in found.logs if found.records is None else ():
        if log.steps:
            pace = pace_of(series_of(log), log)
            causes += [cause for cause in pace.causes if cause.seconds > LEAST * pace.mean_s]
    return causes


def _saved(found: RunFolder, named: Path | None) -> list[SavedState]:
    """Newest first, of the folder that is named, that the records name, or that lies there."""
    told = found.records.head.checkpoints if found.records is not None else ""
    if named is not None and not named.is_dir():
        raise ValueError(f"checkpoints: {str(named)!r} is not a folder; write the one given to run --checkpoints")
    places = [named] if named is not None else [*([Path(told)] if told else []), *found.checkpoints]
    for place in places:
        try:
            if paths := found_in(place):
                return [_looked_at(path, verify=number < VERIFIED) for number, path in enumerate(paths)]
        except OSError:
            continue
    return []


def _looked_at(path: Path, *, verify: bool) -> SavedState:
    step = int(path.name.removeprefix("step-"))
    try:
        manifest, _ = present(path)
        if verify:
            check_bytes(path)
        return SavedState(path.name, manifest.step, "", str(path))
    except DamagedCheckpoint as why:
        return SavedState(path.name, step, str(why), str(path))
