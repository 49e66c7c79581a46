"""`shardwise sweep`: one axis moved, for every model, cluster and policy named; table, CSV, figure."""

import csv
import io
from itertools import product
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from shardwise.answers._lengths import HOW
from shardwise.plugins.engines import Engine, Setup, engine_of
from shardwise.report.charts import Chart, LineMark, Panel, PlotAxis, RuleMark, chart_svg
from shardwise.report.charts.ink import ALARM
from shardwise.report.terminal import legend_of, policy_code
from shardwise.show.cli._axes import axis_of
from shardwise.show.cli._files import Overwrite, figure_file
from shardwise.show.cli._flags import DOES_NOT_FIT, JobFlags
from shardwise.show.cli._groups import CLUSTER, OUTPUT
from shardwise.show.cli._html import draw
from shardwise.show.cli._options import Json, ModelName
from shardwise.show.cli._output import Cell, print_gap, print_json, print_notes, print_table
from shardwise.show.cli._progress import bar
from shardwise.show.cli._shards import LOST
from shardwise.show.cli._study import SweepPoint, SweepResult, SweepStudy, study_of, swept
from shardwise.show.cli._that_fit import print_that_fit
from shardwise.units import SizeUnit, share_text, size_unit
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
        for study in study_of(model, cluster, asked, axis, flags, weak=weak)
    ]
    with bar("points") as told:
        found, missing = swept(studies, where, setup, told)
    notes = _notes(studies, weak=weak)
    if not any(s.points for s in found):
        raise KeyboardInterrupt
    if missing:
        notes.append(f"interrupted: {missing} of {missing + sum(len(s.points) for s in found)} points were not done")
    lost = sum(p.verdict.startswith(LOST) for s in found for p in s.points)
    if lost:
        notes.append(f"{lost} points were lost with the processes that worked on them: run them again")
    if table:
        table.write(_csv(found))
    if picture is not None:
        picture.write(chart_svg(_chart(found)).encode())
    if json:
        print_json(_data(found, weak=weak) | {"engine": where.name, "notes": notes})
    else:
        draw(lambda: chart_svg(_chart(found)))
        _show(found, notes)
    return 0 if any(p.runs for s in found for p in s.points) else DOES_NOT_FIT


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


def _show(found: list[SweepResult], notes: list[str]) -> None:
    for index, study in enumerate(found):
        if index:
            print_gap()
        _show_study(study)
    full = any(p.report is not None and not p.runs for s in found for p in s.points)
    shown = [p.report.policy for s in found for p in s.points if p.report is not None]
    print_notes([*([legend_of(shown)] if shown else []), *notes, *(["! does not fit"] if full else [])])


def _show_study(found: SweepResult) -> None:
    axis = found.study.axis
    unit = size_unit(max((p.report.peak_bytes for p in found.points if p.report is not None), default=2.0**30))
    share = "wait %" if found.study.case.lengths else "to loss s" if found.study.strategy else "MFU %"
    heads = [axis.name, "policy", "step s", share, "tok/s", unit.name, "vs first"]
    rows = [_cells(found.study, p, r, unit) for p, r in zip(found.points, found.relative, strict=True)]
    print_table(found.study.title, heads, rows, words=2, breaks=1)
    if found.knee is not None:
        print_notes([found.knee.why], title="knee")
    full = found.full
    if full is not None and full.policy is not None and full.report is not None:
        case = full.shard.case.on(full.shard.cluster)
        near = f"at {axis.text(full.value)}: nearest"
        print_that_fit(case, full.policy, found.nearest, full.report.step_s, near=near)


def _cells(study: SweepStudy, point: SweepPoint, against: float | None, unit: SizeUnit) -> list[Cell]:
    axis = study.axis
    if point.report is None:
        return [axis.text(point.value), point.verdict, *[None] * 5]
    full = "" if point.runs else "!"
    share = share_text(point.report.mfu_causal_half).rstrip("%")
    if study.strategy:
        share = "unknown" if point.to_loss_s is None else f"{point.to_loss_s:.4g}"
    if point.data is not None:
        share = share_text(point.data.waiting).rstrip("%")
    return [axis.text(point.value), policy_code(point.report.policy), f"{point.step_s:.4g}",
            share, f"{point.tokens_per_s_per_gpu:,.0f}",
            unit.text(point.report.peak_bytes) + full, None if against is None else f"{against:.1%}"]  # fmt: skip


def _csv(found: list[SweepResult]) -> bytes:
    """One row for each point; with several studies their names come first."""
    rows = [_named(s, len(found)) | record for s in found for record in s.records]
    text = io.StringIO(newline="")
    if rows:
        writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    return text.getvalue().encode()


def _named(found: SweepResult, studies: int) -> dict[str, str]:
    if studies == 1:
        return {}
    return {"model": found.study.case.model.name, "on": found.study.on, "asked": found.study.asked}


def _chart(found: list[SweepResult]) -> Chart:
    axis, knee, alone = found[0].study.axis, found[0].knee, len(found) == 1
    good = [[(p.value, p.report) for p in s.points if p.report is not None and p.runs] for s in found]
    names = ["" if alone else s.study.title for s in found]
    paces = [[(p.value, p.step_s) for p in s.points if p.runs and p.step_s is not None] for s in found]
    steps = [LineMark(line, name, dots=True) for line, name in zip(paces, names, strict=True)]
    shares = [LineMark([(v, 100 * r.mfu_causal_half) for v, r in line], name, dots=True)
              for line, name in zip(good, names, strict=True)]  # fmt: skip
    stretched = [[(p.value, p.to_loss_s) for p in s.points if p.runs and p.to_loss_s is not None] for s in found]
    waits = [[(p.value, 100 * p.data.waiting) for p in s.points if p.runs and p.data is not None] for s in found]
    waiting = [LineMark(line, name, dots=True) for line, name in zip(waits, names, strict=True)]
    to_loss = [LineMark(line, name, dots=True) for line, name in zip(stretched, names, strict=True)]
    marked = [knee] if alone and knee is not None and knee.value is not None else []
    rules = [RuleMark("", x=each.value, colour=ALARM) for each in marked]
    across = PlotAxis(axis.title, log=True, text=axis.text, ticks=tuple(sorted({v for line in good for v, _ in line})))
    return Chart(
        found[0].study.title if alone else f"{len(found)} studies",
        [
            Panel("step, s", [*steps, *rules], across, PlotAxis(log=True)),
            Panel("waiting for the slowest rank, %", [*waiting, *rules], across)
            if found[0].study.case.lengths
            else Panel("a step to the same loss, s", [*to_loss, *rules], across, PlotAxis(log=True))
            if found[0].study.strategy
            else Panel("MFU, %", [*shares, *rules], across),
        ],
        legend="" if alone else "below",
        notes=[f"dashed: {each.why}" for each in marked],
        empty="nothing fits",
    )


def _data(found: list[SweepResult], *, weak: bool) -> dict[str, Any]:
    """One study as it is; several as a list."""
    if len(found) == 1:
        return found[0].data | {"weak": weak}
    return {"over": found[0].study.axis.name, "weak": weak, "studies": [s.data for s in found]}
