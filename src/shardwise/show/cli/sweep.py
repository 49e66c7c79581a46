"""`shardwise sweep`: one axis moved, for every model, cluster and policy named; table, CSV, figure."""

from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from shardwise.answers._lengths import HOW
from shardwise.answers._sweep_axes import SweepAxis, axis_of, place_of
from shardwise.answers._sweep_shards import LOST
from shardwise.answers._sweep_study import SweepStudy, swept
from shardwise.answers.sweep import sweep_answer
from shardwise.plugins.engines import Engine, Setup, engine_of
from shardwise.question import Question
from shardwise.question.words import SEARCHED, check_policy
from shardwise.report.charts import chart_svg
from shardwise.show.cli._files import Overwrite, figure_file
from shardwise.show.cli._flags import JobFlags, asked_of_sizes, on_of
from shardwise.show.cli._groups import CLUSTER, OUTPUT
from shardwise.show.cli._options import Json, ModelName
from shardwise.show.cli._output import answered
from shardwise.show.cli._progress import bar
from shardwise.spec.load import cluster_of
from shardwise.spec.sizes import sizes_of
from shardwise.step.estimate.synced import choices_of
from shardwise.step.estimate.synced.convergence import DENSE
from shardwise.whole_file import OutputFile

HERE = "local"
CSV_MARK = b",policy_code,fits,verdict,step_s,"
"""in the head of every table of points"""


def sweep(
    *models: ModelName,
    on: Annotated[
        list[str],
        Parameter(
            negative=(), group=CLUSTER, help="A sized cluster, or with --over gpus= a fabric or GPU; may repeat."
        ),
    ],
    over: Annotated[str, Parameter(help="gpus=64:4096, seq=, micro=, batch=, network=10Gbps:800Gbps, or a,b,c.")],
    policy: Annotated[
        list[str] | None,
        Parameter(negative=(), help="'tp=8,pp=4', fsdp, ...; best (default): the best at each point; may repeat."),
    ] = None,
    weak: Annotated[bool, Parameter(help="Let the global batch grow with the GPUs.")] = False,
    csv: Annotated[Path | None, Parameter(group=OUTPUT, help="Write the points to this file.")] = None,
    figure: Annotated[Path | None, Parameter(group=OUTPUT, help="Draw them to this SVG file.")] = None,
    engine: Annotated[str, Parameter(help="local, or a cluster engine that is there: ray, dask.")] = HERE,
    address: Annotated[str | None, Parameter(help="Address of that engine; default: as it finds its own.")] = None,
    jobs: Annotated[int | None, Parameter(help="Processes of --engine local; default: all cores.")] = None,
    flags: JobFlags = JobFlags(),  # noqa: B008  frozen
    overwrite: Overwrite = False,
    json: Json = False,
) -> int:
    """One axis: step, MFU, memory and throughput at each point, and the knee."""
    axis = axis_of(over)
    if not models:
        raise ValueError("model: none is named; write a catalog name such as llama-3-8b, or several")
    if figure is not None and figure.suffix.lower() != ".svg":
        raise ValueError(f"figure: {figure.name!r} is not an SVG; write for example out.svg")
    picture, table = figure_file(figure, overwrite), csv and OutputFile(csv, "csv", CSV_MARK, overwrite)
    where, setup = _engine(engine, address, jobs)
    studies = [
        study
        for model, cluster, asked in product(
            dict.fromkeys(models), dict.fromkeys(on), dict.fromkeys(policy or ["best"])
        )
        for study in _studies(model, cluster, asked, axis, flags, weak=weak)
    ]
    with bar("points") as progress:
        found, missing = swept(studies, where, setup, progress)
    notes = _notes(studies, weak=weak)
    if not any(s.points for s in found):
        raise KeyboardInterrupt
    if missing:
        notes.append(f"interrupted: {missing} of {missing + sum(len(s.points) for s in found)} points were not done")
    lost = sum(p.verdict.startswith(LOST) for s in found for p in s.points)
    if lost:
        notes.append(f"{lost} points were lost with the processes that worked on them: run them again")
    answer = sweep_answer(found, weak=weak, engine=where.name, notes=notes)
    if table:
        table.write(answer.csv())
    if picture is not None:
        picture.write(chart_svg(answer.chart).encode())
    return answered(answer, json)


def _studies(
    model: str, on: str, asked: str, axis: SweepAxis, flags: JobFlags, *, weak: bool
) -> list[SweepStudy]:  # fmt: skip
    """One, or one for each strategy of data parallelism that `flags.sync` names."""
    check_policy(asked)
    on, sync = on_of(flags, on), flags.sync
    case = asked_of_sizes(model, sizes_of(on), flags, _gpus(axis, on, weak=weak))
    choices = [None] if sync is None else choices_of(sync, case.job.optimizer.name)
    return [
        _study(replace(case, sync=choice), list(case.notes), on, asked, axis, weak=weak,
               strategy="" if sync is None else DENSE if choice is None else choice.text)
        for choice in choices
    ]  # fmt: skip


def _study(
    case: Question, notes: list[str], on: str, asked: str, axis: SweepAxis, *, weak: bool, strategy: str
) -> SweepStudy:
    searched = asked.split(",")[0].strip().lower() in SEARCHED
    place = place_of(axis, case, on, weak=weak, searched=searched)
    return SweepStudy(on, asked, axis, case, place, [] if axis.name == "seq" else notes, strategy)


def _gpus(axis: SweepAxis, on: str, *, weak: bool) -> int:
    """For which the usual batch is meant: the most of the sweep, or the first where the batch grows with them."""
    return int(axis.values[0] if weak else max(axis.values)) if axis.name == "gpus" else cluster_of(on).gpus


def _engine(name: str, address: str | None, jobs: int | None) -> tuple[Engine, Setup]:
    if name == HERE and address is not None:
        raise ValueError(
            f"address: {address!r} is of no use to --engine local; write --engine ray or --engine dask too"
        )
    if name != HERE and jobs is not None:
        raise ValueError(f"jobs: {jobs} is of no use to --engine {name}, which has its own workers; leave it out")
    return engine_of(name), Setup(jobs=jobs, address=address)


def _notes(studies: list[SweepStudy], *, weak: bool) -> list[str]:
    axis = studies[0].axis
    lines: list[str] = []
    for study in studies:
        prefix = f"{study.case.model.name}: " if len({s.case.model.name for s in studies}) > 1 else ""
        lines += [prefix + note for note in study.notes]
        if axis.name == "seq":
            lines.append(f"{prefix}every step has about {study.case.job.step_tokens:,} tokens")
    if axis.name == "gpus":
        lines.append("weak scaling: the global batch grows with the GPUs" if weak else
                     "strong scaling: the global batch stays; --weak lets it grow with the GPUs")  # fmt: skip
    if axis.name == "network":
        lines.append("bandwidth of each GPU's share of the network, at every level between nodes; latencies stay")
    if any(study.asked != "best" for study in studies):
        lines.append("data parallelism takes the rest of the GPUs, unless the policy states it")
    if (choice := studies[0].case.lengths) is not None:
        lines.append(f"step and tok/s are of the data: lengths {choice.lengths.name}, {HOW[choice.packing]}; wait: "
                     "extra time of the slowest rank over the mean")  # fmt: skip
    if studies[0].strategy:
        lines.append("to loss: the step, stretched by the further steps to the same loss, where they were measured")
    return list(dict.fromkeys([*lines, "vs first: throughput per GPU against the first point that runs"]))
