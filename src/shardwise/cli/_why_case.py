"""What ran, as far as the user says: a configuration of the program, or a model with a policy's flags."""

from dataclasses import dataclass
from dataclasses import replace as with_
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from shardwise.arch import model_of
from shardwise.case import case_of
from shardwise.cli._flags import Flags, asked
from shardwise.cli._groups import CLUSTER
from shardwise.cli._job import job_of, precision_asked
from shardwise.cli._options import profile_or_none
from shardwise.diagnose.why_slow import Expected, expected_parts
from shardwise.estimate.band import tuned_band
from shardwise.formats import Format, Known, Launch, read_launch, settled
from shardwise.software import stack_of
from shardwise.spec.job import precision_of
from shardwise.spec.load import cluster_of
from shardwise.spec.rules import verdict_of
from shardwise.studies.build import report_of


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class WhyFlags(Flags):
    """A policy's flags, none of them needed."""

    on: Annotated[str, Parameter(group=CLUSTER, help="The cluster it ran on: dgx-h100:64, 8xh100 or a YAML file.")] = ""
    model: Annotated[str | None, Parameter(help="What was trained: catalog name, Hugging Face id, config.json.")] = None
    config: Annotated[
        list[Path] | None,
        Parameter(consume_multiple=True, help="Launch script or configuration of the run, as `check` takes it."),
    ] = None
    target: Annotated[str, Parameter(help="Whose configuration it is; default: told by its settings.")] = ""


@dataclass(frozen=True)
class RunAsMeant:
    """The run as it was meant."""

    launch: Launch
    form: Format | None
    """whose configuration was given"""
    expected: Expected
    notes: tuple[str, ...]


def ran_of(flags: WhyFlags, logged_batch: int | None) -> RunAsMeant | None:
    """None where nothing was said of it. `logged_batch`: what the log says of the global batch."""
    model = flags.model
    form: Format | None = None
    if flags.config:
        launch, form, notes = _from_files(flags, flags.config, logged_batch)
    elif model is not None:
        if not flags.on:
            raise ValueError(f"on: not given, but the model {model!r} is; write --on with the cluster it ran on")
        if flags.global_batch is None and logged_batch:
            flags = with_(flags, global_batch=str(logged_batch))
        ask = asked(model, flags)
        launch, notes = Launch(ask.case, ask.policy, called=model), ask.notes
    elif flags.on:
        raise ValueError(f"model: not given, but the cluster {flags.on!r} is; write --model or --config")
    else:
        return None
    case = launch.case
    verdict = verdict_of(case.model, case.cluster, case.job, launch.policy)
    if not verdict.legal:
        raise ValueError(f"policy: it could not have run so: {verdict.rule}, {verdict.why}; write the flags of the run")
    return RunAsMeant(launch, form, _expected(launch), tuple(notes))


def _expected(launch: Launch) -> Expected:
    report = report_of(launch.case, launch.policy)
    band = tuned_band(launch.case)
    low_s, high_s = band.around(report.step_s) if band else (report.step_s, report.step_s)
    return Expected(
        step_s=report.step_s, low_s=low_s, high_s=high_s,
        ideal_s=report.step_s * report.mfu_causal_half, parts=expected_parts(report.time_s),
    )  # fmt: skip


def _from_files(flags: WhyFlags, files: list[Path], logged_batch: int | None) -> tuple[Launch, Format, list[str]]:
    if not flags.on:
        raise ValueError("on: not given, but a configuration is; write --on with the cluster it ran on")
    cluster = cluster_of(flags.place)
    shape = None if flags.model is None else model_of(flags.model)
    form, found = read_launch(files, Known(cluster.gpus, shape.layers if shape else None), flags.target)
    shape, notes = shape or found.model, list(found.notes)
    if shape is None:
        raise ValueError(f"model: {files[0].name} does not state its shape; write --model with its name or config.json")
    batch = flags.global_batch or found.global_batch or logged_batch
    if batch is None:
        batch = found.policy.dp * found.policy.micro_batch * found.policy.pp * found.policy.vpp
        notes.append(f"global batch not stated: {batch} sequences assumed")
    length = str(found.seq) if found.seq and flags.seq is None else flags.seq
    stack = stack_of(flags.stack) if flags.stack else stack_of(form.stack)
    stated = flags.precision is None and bool(found.precision)
    recipe = precision_of(found.precision) if stated else precision_asked(flags.precision, shape, stack)
    job, told = job_of(
        shape, length, str(batch), recipe, found.optimizer or flags.optimizer, None, flags.grad_dtype, gpus=cluster.gpus
    )
    notes += told
    case = case_of(shape, cluster, job, stack, profile_or_none(flags.profile))
    launch = Launch(case, settled(found.policy, case), found.layers, found.version, flags.model or shape.name)
    return launch, form, notes
