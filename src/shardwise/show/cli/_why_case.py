"""What ran, as far as the user says: a configuration of the program, or a model with a policy's flags."""

from collections.abc import Sequence
from dataclasses import replace as with_
from pathlib import Path
from statistics import median
from typing import Annotated

from cyclopts import Parameter

from shardwise.answers._why_question import RunAsMeant, UpdateOf, WholeStep
from shardwise.answers.check import rollout_answer
from shardwise.answers.posttrain import PosttrainRow
from shardwise.cost.calibrate.profile import Profile
from shardwise.measured.diagnose.logged import LoggedPhases
from shardwise.measured.diagnose.why_slow import Expected, expected_parts
from shardwise.programs.formats import Format, Known, Launch, model_called, question_of_launch, read_launch
from shardwise.programs.formats._rollout_question import StatedUpdate, stated_update, trainers_of
from shardwise.question import question_of
from shardwise.question.studies.build import report_of
from shardwise.show.cli._flags import Flags, on_of
from shardwise.show.cli._options import flags, option
from shardwise.spec.arch import model_of
from shardwise.spec.load import cluster_of
from shardwise.spec.parameters import ON
from shardwise.spec.rules import verdict_of
from shardwise.step.estimate.band import tuned_band


@flags
class WhyFlags(Flags):
    """A policy's flags, none of them needed."""

    on: Annotated[str, option(ON, help="The cluster it ran on: dgx-h100:64, 8xh100 or a YAML file.")] = ""
    model: Annotated[str | None, Parameter(help="The trained model: catalog name, Hugging Face id, config.json.")] = (
        None
    )
    config: Annotated[
        list[Path] | None,
        Parameter(consume_multiple=True, help="Launch script or configuration of the run, as `check` takes it."),
    ] = None
    target: Annotated[str, Parameter(help="The program of the configuration; default: recognised by its settings.")] = (
        ""
    )


def ran_of(flags: WhyFlags, logged_batch: int | None) -> RunAsMeant | None:
    """None where nothing was said of it. `logged_batch`: what the log says of the global batch."""
    model = flags.model
    form: Format | None = None
    whole: WholeStep | None = None
    update: UpdateOf | None = None
    if flags.config:
        launch, form, notes, whole, update = _from_files(flags, flags.config, logged_batch)
    elif model is not None:
        if not flags.on:
            raise ValueError(f"on: not given, but the model {model!r} is; write --on with the cluster it ran on")
        if flags.global_batch is None and logged_batch:
            flags = with_(flags, global_batch=str(logged_batch))
        ask = question_of(model, flags.on, flags, recommend=False)
        launch, notes = Launch(ask.case, ask.policy, called=model), list(ask.notes)
    elif flags.on:
        raise ValueError(f"model: not given, but the cluster {flags.on!r} is; write --model or --config")
    else:
        return None
    case = launch.case
    verdict = verdict_of(case.model, case.cluster, case.job, launch.policy)
    if not verdict.legal:
        raise ValueError(f"policy: it could not have run so: {verdict.rule}, {verdict.why}; write the flags of the run")
    return RunAsMeant(launch, form, _expected(launch), notes, whole, update)


def lengths_of(phased: Sequence[LoggedPhases]) -> str:
    """Of the answers in a log, as `posttrain` takes them; empty: it does not say."""
    means = [each.answer_tokens for each in phased if each.answer_tokens]
    longest = [each.longest_tokens for each in phased if each.longest_tokens]
    return f"{min(median(means), max(longest)):g},{max(longest):g}" if means and longest else ""


def _expected(launch: Launch) -> Expected:
    report = report_of(launch.case, launch.policy)
    band = tuned_band(launch.case)
    low_s, high_s = band.around(report.step_s) if band else (report.step_s, report.step_s)
    return Expected(
        step_s=report.step_s, low_s=low_s, high_s=high_s,
        ideal_s=report.step_s * report.mfu_causal_half, parts=expected_parts(report.time_s),
    )  # fmt: skip


def _from_files(
    flags: WhyFlags, files: list[Path], logged_batch: int | None
) -> tuple[Launch, Format, list[str], WholeStep, UpdateOf]:
    if not flags.on:
        raise ValueError("on: not given, but a configuration is; write --on with the cluster it ran on")
    cluster = cluster_of(on_of(flags))
    shape = None if flags.model is None else model_of(flags.model)
    form, found = read_launch(files, Known(cluster.gpus, shape.layers if shape else None), flags.target)
    shape = shape or found.model or model_called(found.called)
    if shape is None:
        raise ValueError(f"model: {files[0].name} does not state its shape; write --model with its name or config.json")
    ask = question_of_launch(form, found, shape, trainers_of(found, cluster), flags, logged_batch)
    launch = Launch(ask.case, ask.policy, found.layers, found.version, flags.model or shape.name)
    notes, model = list(ask.notes), shape

    def whole(lengths: str) -> PosttrainRow | None:
        if found.rollout is None:
            return None
        answer, said = rollout_answer(form, found, model, cluster, lengths, model=launch.called, on=flags.on)
        notes.extend(said)
        return None if answer is None else answer.recommended

    def update(lengths: str, profile: Profile | None) -> StatedUpdate:
        assert found.rollout is not None, "only a log of reinforcement learning has phases"
        return stated_update(form, found, found.rollout, model, cluster, lengths, profile)

    return launch, form, notes, whole, update
