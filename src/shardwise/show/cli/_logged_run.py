"""A training log as the run it records: what `learn` keeps, and `check --log` corrects its prediction by."""

import datetime
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from msgspec.structs import replace as with_fields

from shardwise.answers._why_question import RunAsMeant
from shardwise.cost.calibrate.profile import LearnedRun, Profile, profile_of
from shardwise.cost.calibrate.profile_toml import to_toml
from shardwise.measured.diagnose.health.status import RunStatus
from shardwise.measured.learn import measured_run, with_runs
from shardwise.programs.importers import training_log
from shardwise.programs.importers._file import read_text
from shardwise.question import PolicyQuestion
from shardwise.show.cli._why_case import WhyFlags, lengths_of, ran_of
from shardwise.spec.policy import Policy
from shardwise.whole_file import OutputFile
from shardwise.work.case import Case


def logged_run(
    case: Case, policy: Policy, path: Path, option: str = "run", ran: RunAsMeant | None = None
) -> LearnedRun:
    """`case`: with the rates of a profile and without its runs. Of reinforcement learning the update is learned, over
    packed sequences as long as the log has them; `ran` has its launch file."""
    facts = training_log.parse(read_text(path, option))
    if facts.update is not None:
        if ran is None or ran.update is None:
            raise ValueError(
                f"{option}: {path.name} is of reinforcement learning, whose update is learned with its launch file; "
                "write shardwise learn LOG --config FILE --on CLUSTER"
            )
        update = ran.update(lengths_of([facts.update]), case.profile)
        seconds = (facts.update.update_s or 0.0) / update.updates / update.factor
        return measured_run(update.case, update.policy, path.name[:200], seconds, None)
    rate = facts.tokens_per_s_per_gpu
    step_s = facts.step_s or (case.job.step_tokens / rate / policy.gpus if rate else 0.0)
    if not step_s > 0:
        raise ValueError(f"{option}: {path.name} states neither a step time nor tokens per second; write another log")
    return measured_run(case, policy, path.name[:200], step_s, facts.peak_bytes)


def empty_profile(name: str, device: str) -> Profile:
    return Profile(name=name[:100] or "learned", device=device, date=datetime.date.today().isoformat())


def rates_of(profile: Profile) -> Profile:
    """Without its runs: what they are compared with."""
    return with_fields(profile, runs=())


def after_logs(ask: PolicyQuestion, logs: Sequence[Path]) -> tuple[PolicyQuestion, list[str]]:
    """The question with a profile that holds the run of these logs, and a note for each."""
    profile = ask.profile or empty_profile(logs[0].stem, ask.cluster.gpu.name)
    plain = replace(ask, profile=rates_of(profile)).case
    runs = [logged_run(plain, ask.policy, path, "log") for path in logs]
    profile, refused = with_runs(profile, runs)
    notes = [
        f"{run.source}: {run.measured_s:.4g} s a step, {run.measured_s / run.predicted_s:.2f} times the prediction"
        + "; left out, since it contradicts the other runs" * (run in refused)
        for run in runs
    ]
    return replace(ask, profile=profile), notes


def write_learned(file: OutputFile, flags: WhyFlags, name: str, status: RunStatus) -> str:
    """The profile with the run as it stood last; a sentence about it."""
    ran = ran_of(replace(flags, profile=None, no_profile=True), None)
    if ran is None or status.step_s is None:
        return f"{file.path}: not written, since no step was seen"
    case = ran.launch.case
    gpu = case.cluster.gpu.name
    before = empty_profile(name, gpu) if flags.profile is None else profile_of(flags.profile)
    peak = None if status.peak_bytes is None else float(status.peak_bytes)
    run = measured_run(case.measured_by(rates_of(before)), ran.launch.policy, name[:200], status.step_s, peak)
    profile, refused = with_runs(before, [run])
    file.write(to_toml(profile).encode())
    if refused:
        return f"{name} contradicts the other runs of {file.path}, and was left out"
    return f"written to {file.path}; give it to any verb with --profile {file.path}"
