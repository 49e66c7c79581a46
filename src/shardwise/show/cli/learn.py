"""`shardwise learn`: logs, tables, traces and collectives of yours, as a profile that corrects every answer."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import msgspec
from cyclopts import Parameter

from shardwise.answers.learn import CauseRow, LearnAnswer, LearnedRunRow
from shardwise.cost.calibrate.profile import LearnedRun, Profile, profile_of
from shardwise.cost.calibrate.profile_toml import MARK, to_toml
from shardwise.measured.learn import measure_next, what_runs_say, with_runs
from shardwise.measured.validate.predict import predict
from shardwise.measured.validate.table import NEEDED, header, read_table
from shardwise.programs.importers import training_log
from shardwise.programs.importers._file import read_text
from shardwise.show.cli._calibrate_from import profile_from_file
from shardwise.show.cli._files import Overwrite
from shardwise.show.cli._logged_run import empty_profile, logged_run, rates_of
from shardwise.show.cli._options import ACTS, Json
from shardwise.show.cli._output import answered
from shardwise.show.cli._why_case import WhyFlags, ran_of
from shardwise.spec.cluster import Cluster
from shardwise.spec.load import cluster_of
from shardwise.spec.reported import catalog_gpu
from shardwise.step.estimate.causes import CAUSES
from shardwise.step.estimate.learned import runs_for
from shardwise.whole_file import OutputFile

MOST_CAUSES = 6
NO_FLAGS = WhyFlags()


def learn(
    run: Annotated[list[Path], Parameter(help="Training logs, tables of runs, traces, nccl-tests output.")],
    /,
    flags: WhyFlags = NO_FLAGS,
    *,
    out: Annotated[Path, ACTS, Parameter(help="The profile to write, such as mine.toml; with --profile: more of it.")],
    forget: Annotated[
        list[str] | None, Parameter(consume_multiple=True, help="Runs of --profile to leave out, by file name.")
    ] = None,
    overwrite: Overwrite = False,
    json: Json = False,
) -> int:
    """Runs of yours tighten every answer: give the profile to any verb with --profile.

    One launch file, or --model with the policy, is of all logs; as many launch files as logs are one each. Exit code 1
    when a run contradicts the others and was left out.
    """
    file = OutputFile(out, "out", MARK.encode(), overwrite)
    if not flags.on:
        raise ValueError("on: not given; write --on with the cluster that the runs were on, such as 8xh100")
    cluster = cluster_of(flags.on)
    profile, notes = _begun(flags, out, cluster), list[str]()
    profile = _without(profile, forget or [])
    logs = [path for path in run if not _is_other(path)]
    for path in (path for path in run if path not in logs and not _is_table(path)):
        profile, said = profile_from_file(path, profile, cluster)
        notes += said
    found = [one for path in run if path not in logs and _is_table(path) for one in _of_table(path, profile, cluster)]
    for place, path in enumerate(logs):
        found.append(_of_log(path, _flags_of(flags, place, len(logs)), profile))
    profile, refused = with_runs(profile, found)
    file.write(to_toml(profile).encode())
    return answered(_answer(out, profile, refused, notes), json)


def _begun(flags: WhyFlags, out: Path, cluster: Cluster) -> Profile:
    if flags.profile is not None:
        return profile_of(flags.profile).on(cluster.gpu)
    return empty_profile(out.stem, cluster.gpu.name)


def _without(profile: Profile, forget: list[str]) -> Profile:
    known = {run.source for run in profile.runs}
    for name in forget:
        if name not in known:
            listed = ", ".join(sorted(known)) or "none"
            raise ValueError(f"forget: {name!r} is not a run of the profile; write one of {listed[:300]}")
    return msgspec.structs.replace(profile, runs=tuple(run for run in profile.runs if run.source not in forget))


def _is_table(path: Path) -> bool:
    return path.suffix == ".csv" and set(NEEDED) <= set(header(path))


def _is_other(path: Path) -> bool:
    """Whether it is not a training log."""
    if _is_table(path):
        return True
    return not training_log.is_training_log(read_text(path, "run"))


def _flags_of(flags: WhyFlags, place: int, logs: int) -> WhyFlags:
    """As many launch files as logs are one each; else all are of every log."""
    if flags.config is None or logs < 2 or len(flags.config) != logs:
        return flags
    return replace(flags, config=[flags.config[place]])


def _of_log(path: Path, flags: WhyFlags, profile: Profile) -> LearnedRun:
    ran = ran_of(replace(flags, profile=None, no_profile=True), None)
    if ran is None or (flags.model is None and not flags.config):
        raise ValueError(f"config: {path.name} does not say what ran; write --config with its launch file, or --model")
    return logged_run(ran.launch.case.measured_by(rates_of(profile)), ran.launch.policy, path, ran=ran)


def _of_table(path: Path, profile: Profile, cluster: Cluster) -> list[LearnedRun]:
    """Rows with a measured speed, on this GPU."""
    rows = [row for row in read_table(path) if catalog_gpu(row.word("gpu")) == cluster.gpu.name]
    found = []
    for prediction in predict(rows, profile=rates_of(profile)) if rows else []:
        if prediction.error is not None and prediction.step_s is not None:
            causes = {
                name: round(float(value), 6) for name, value in zip(CAUSES, prediction.causes, strict=True) if value
            }
            found.append(LearnedRun(
                source=f"{path.name[:180]} row {prediction.measured.row}", stack=prediction.stack, causes=causes,
                job=f"{prediction.measured.word('model')} on {cluster.gpu.name}"[:200],
                measured_s=prediction.step_s / (1.0 + prediction.error), predicted_s=prediction.step_s,
            ))  # fmt: skip
    if not found:
        raise ValueError(f"run: {path.name} has no row with a measured step on {cluster.gpu.name}; check --on")
    return found


def _answer(out: Path, profile: Profile, refused: list[LearnedRun], notes: list[str]) -> LearnAnswer:
    notes = [*notes, f"written to {out}; give it to any verb with --profile {out}"]
    notes += [
        f"{run.source}: {run.measured_s / run.predicted_s:.2f} times its prediction contradicts the other runs of the "
        "job; left out: check its launch file, or --forget the others"
        for run in refused
    ]
    programs = dict.fromkeys(run.stack for run in profile.runs)
    if len(programs) > 1:
        notes.append(f"runs of {', '.join(programs)}: each says something of its own program only")
    causes, further = list[CauseRow](), ""
    if profile.runs:
        runs = runs_for(profile, profile.runs[-1].stack)
        causes = [
            CauseRow(cause=row.cause, factor=row.factor, spread_before=row.before, spread=row.after)
            for row in what_runs_say(runs)[:MOST_CAUSES]
        ]
        further = measure_next(runs)
    return LearnAnswer(
        out=str(out), device=profile.device, causes=causes, next=further, notes=notes,
        runs=[_row(run, True) for run in profile.runs] + [_row(run, False) for run in refused],
    )  # fmt: skip


def _row(run: LearnedRun, taken: bool) -> LearnedRunRow:
    return LearnedRunRow(
        source=run.source, job=run.job, program=run.stack, measured_s=run.measured_s, predicted_s=run.predicted_s,
        ratio=run.measured_s / run.predicted_s, taken=taken,
    )  # fmt: skip
