"""`shardwise sweep`: one axis moved, the rest fixed or best at each point; table, CSV, figure."""

import csv
import io
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import msgspec
from cyclopts import Parameter

from shardwise.cli._axes import Axis, Place, axis_of, place_of
from shardwise.cli._case import Case, Fixed, JobFlags, ModelName, case_of
from shardwise.cli._choice import SEARCHED, check_policy, policy_from
from shardwise.cli._knee import Knee, knee_of
from shardwise.cli._options import Json
from shardwise.cli._output import Cell, print_json, print_notes, print_table
from shardwise.cli._progress import watched
from shardwise.cli.validate import write_whole
from shardwise.report import Report
from shardwise.report.figure import Figure, Panel, svg_of
from shardwise.report.terminal import policy_code
from shardwise.search.constraints import constraints_of
from shardwise.spec.policy import Policy
from shardwise.spec.rules import verdict_of
from shardwise.units import gib

DOES_NOT_FIT = 1


@dataclass(frozen=True)
class Point:
    value: float
    case: Case
    gpus: int
    policy: Policy | None
    report: Report | None
    verdict: str

    @property
    def runs(self) -> bool:
        return self.report is not None and self.report.fits


def sweep(
    model: ModelName,
    /,
    *,
    on: Annotated[str, Parameter(help="A sized cluster; with --over gpus= a fabric or GPU is enough.")],
    over: Annotated[str, Parameter(help="gpus=64:4096, seq=, micro=, batch=, network=10Gbps:800Gbps, or a,b,c.")],
    policy: Annotated[str, Parameter(help="'tp=8,pp=4', fsdp, ...; best: the best at each point.")] = "best",
    weak: Annotated[bool, Parameter(help="Let the global batch grow with the GPUs.")] = False,
    csv: Annotated[Path | None, Parameter(help="Write the points to this file.")] = None,
    figure: Annotated[Path | None, Parameter(help="Draw them to this SVG file.")] = None,
    fix: Fixed = None,
    flags: JobFlags = JobFlags(),  # noqa: B008  frozen
    json: Json = False,
) -> int:
    """One axis: step, MFU, memory and throughput at each point, and the knee."""
    axis = axis_of(over)
    check_policy(policy)
    if figure is not None and figure.suffix.lower() != ".svg":
        raise ValueError(f"figure: {figure.name!r} is no SVG; write for example out.svg")
    case, notes = case_of(model, flags, only=constraints_of(fix or ()))
    searched = policy.split(",")[0].strip().lower() in SEARCHED
    place = place_of(axis, case, on, weak=weak, searched=searched)
    points = [_point(axis, place, policy, value) for value in watched(axis.values, "points")]
    knee = knee_of(axis, _measured(points), lambda value: _step(axis, place, policy, value))
    if axis.name == "seq":
        notes = []
    notes += _notes(axis, case.job.step_tokens, weak=weak, policy=policy)
    title = f"{case.model.name} on {on}, {'best policy at each point' if policy == 'best' else policy}"
    if csv is not None:
        _write_csv(csv, axis, points)
    if figure is not None:
        write_whole(figure, svg_of(_figure(title, axis, points, knee)).encode(), "figure")
    if json:
        print_json(_data(case, on, axis, points, knee, weak=weak) | {"notes": notes})
    else:
        _show(title, axis, points, knee, notes)
    return 0 if any(p.runs for p in points) else DOES_NOT_FIT


def _point(axis: Axis, place: Place, text: str, value: float) -> Point:
    case, cluster = place(value)
    wanted = f"{text},micro={round(value)}" if axis.name == "micro" else text
    policy = policy_from(wanted, case, cluster)
    if policy is None:
        return Point(value, case, cluster.gpus, None, None, "nothing fits")
    verdict = verdict_of(case.model, cluster, case.job, policy, cure=False)
    if not verdict.legal:
        return Point(value, case, cluster.gpus, policy, None, f"cannot run, {verdict.rule}: {verdict.why}")
    report = case.report(cluster, policy)
    return Point(value, case, cluster.gpus, policy, report, report.verdict)


def _measured(points: list[Point]) -> list[tuple[float, float, float]]:
    """Value, step and throughput per GPU of what runs."""
    return [
        (p.value, p.report.step_s, p.report.tokens_per_s_per_gpu) for p in points if p.report is not None and p.runs
    ]


def _step(axis: Axis, place: Place, text: str, value: float) -> float | None:
    found = _point(axis, place, text, value)
    return found.report.step_s if found.report is not None and found.runs else None


def _notes(axis: Axis, step_tokens: int, *, weak: bool, policy: str) -> list[str]:
    lines = []
    if axis.name == "gpus":
        lines.append("weak scaling: the global batch grows with the GPUs" if weak else
                     "strong scaling: the global batch stays; --weak lets it grow with the GPUs")  # fmt: skip
    if axis.name == "seq":
        lines.append(f"every step has about {step_tokens:,} tokens")
    if axis.name == "network":
        lines.append("bandwidth of each GPU's share of the network, at every level between nodes; latencies stay")
    if policy != "best":
        lines.append("data parallelism takes what is left of the GPUs, unless the policy states it")
    return [*lines, "vs first: throughput per GPU against the first point that runs"]


def _relative(points: list[Point]) -> list[float | None]:
    first = next((p.report.tokens_per_s_per_gpu for p in points if p.report is not None and p.runs), None)
    return [p.report.tokens_per_s_per_gpu / first if p.report is not None and first else None for p in points]


def _show(title: str, axis: Axis, points: list[Point], knee: Knee | None, notes: list[str]) -> None:
    def cells(point: Point, against: float | None) -> list[Cell]:
        if point.report is None:
            return [axis.text(point.value), point.verdict, *[None] * 5]
        full = "" if point.runs else "!"
        return [axis.text(point.value), policy_code(point.report.policy), f"{point.report.step_s:.4g}",
                f"{100 * point.report.mfu_full_square:.1f}", f"{point.report.tokens_per_s_per_gpu:,.0f}",
                gib(point.report.peak_bytes) + full, None if against is None else f"{against:.1%}"]  # fmt: skip

    heads = [axis.name, "policy", "step s", "MFU %", "tok/s", "GiB", "vs first"]
    print_table(title, heads, [cells(p, r) for p, r in zip(points, _relative(points), strict=True)], words=2)
    if knee is not None:
        print_notes([knee.why], title="knee")
    full = [] if all(p.runs or p.report is None for p in points) else ["! does not fit"]
    print_notes([*notes, *full])


def _record(axis: Axis, point: Point, against: float | None) -> dict[str, Any]:
    report = point.report
    return {
        **({"network_bytes_per_s": point.value} if axis.name == "network" else {axis.name: round(point.value)}),
        "gpus": point.gpus,
        "seq_tokens": point.case.job.seq, "global_sequences": point.case.job.global_batch,
        "policy_code": None if point.policy is None else policy_code(point.policy),
        "fits": point.runs, "verdict": point.verdict,
        "step_s": None if report is None else report.step_s,
        "mfu_full_square": None if report is None else report.mfu_full_square,
        "tokens_per_s_per_gpu": None if report is None else report.tokens_per_s_per_gpu,
        "peak_bytes": None if report is None else report.peak_bytes,
        "throughput_per_gpu_vs_first": against,
    }  # fmt: skip


def _write_csv(path: Path, axis: Axis, points: list[Point]) -> None:
    rows = [_record(axis, p, r) for p, r in zip(points, _relative(points), strict=True)]
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_whole(path, text.getvalue().encode(), "csv")


def _figure(title: str, axis: Axis, points: list[Point], knee: Knee | None) -> Figure:
    good = [(p.value, p.report) for p in points if p.report is not None and p.runs]
    return Figure(
        title=title, x_title=axis.title, x_text=axis.text,
        panels=(
            Panel("step, s", tuple((v, r.step_s) for v, r in good), log=True),
            Panel("MFU, %", tuple((v, 100 * r.mfu_full_square) for v, r in good), log=False),
        ),
        mark=None if knee is None or knee.value is None else (knee.value, knee.why),
    )  # fmt: skip


def _data(case: Case, on: str, axis: Axis, points: list[Point], knee: Knee | None, *, weak: bool) -> dict[str, Any]:
    rows = [
        _record(axis, p, r) | {"policy": None if p.policy is None else msgspec.to_builtins(p.policy)}
        for p, r in zip(points, _relative(points), strict=True)
    ]
    return {
        "model": case.model.name, "on": on, "stack": case.stack.name, "over": axis.name, "weak": weak, "points": rows,
        "knee": None if knee is None else msgspec.to_builtins(knee),
    }  # fmt: skip
