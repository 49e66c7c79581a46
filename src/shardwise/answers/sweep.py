"""`sweep`: one axis moved - step, MFU, memory and throughput at each point, and the knee; table, CSV and figure."""

import csv
import io
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import msgspec
from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace as with_fields

from shardwise.answers._sweep_knee import Knee
from shardwise.answers._sweep_study import SweepPoint, SweepResult, SweepStudy
from shardwise.answers._that_fit import NearPolicy, near_notes, near_policies, room_of
from shardwise.answers.answer import Answer, Cell, Figure, Notes, Part, Table
from shardwise.report.charts import Chart, LineMark, Panel, PlotAxis, RuleMark, chart_svg
from shardwise.report.charts.ink import ALARM
from shardwise.report.terminal import legend_of, policy_code
from shardwise.spec.policy import Policy
from shardwise.units import SizeUnit, share_text, size_unit


class SweptPoint(Struct, frozen=True, kw_only=True):
    """At one value of the axis, which is the first of these that is there."""

    network_bytes_per_s: float | UnsetType = UNSET
    gpus: int
    seq: int | UnsetType = UNSET
    micro: int | UnsetType = UNSET
    batch: int | UnsetType = UNSET
    seq_tokens: int
    global_sequences: int
    policy_code: str | None
    fits: bool
    verdict: str
    step_s: float | None
    mfu_causal_half: float | None
    mfu_full_square: float | None
    tokens_per_s_per_gpu: float | None
    peak_bytes: float | None
    throughput_per_gpu_vs_first: float | None
    data_step_s: float | UnsetType | None = UNSET
    """with the lengths of the data, and so the next three"""
    data_tokens_per_s_per_gpu: float | UnsetType | None = UNSET
    waiting: float | UnsetType | None = UNSET
    data_share: float | UnsetType | None = UNSET
    sync: str | UnsetType = UNSET
    """strategy of data parallelism, where strategies were asked for"""
    to_loss_s: float | UnsetType | None = UNSET
    policy: Policy | None


class SweepAnswer(Answer, frozen=True, kw_only=True):
    """One study."""

    only_shown: ClassVar[tuple[str, ...]] = ("result",)

    model: str
    on: str
    asked: str
    stack: str
    over: str
    sync: str | None
    points: Sequence[SweptPoint]
    knee: Knee | None
    that_fit: Sequence[NearPolicy]
    """at the first point whose policy does not fit"""
    weak: bool | UnsetType = UNSET
    engine: str | UnsetType = UNSET
    result: Any = UNSET
    """a SweepResult"""

    @property
    def exit_code(self) -> int:
        return 0 if any(point.fits for point in self.points) else 1

    @property
    def chart(self) -> Chart:
        return _chart([self.result])

    def csv(self) -> bytes:
        return _csv([self])

    def parts(self) -> Iterator[Part]:
        yield Figure(lambda: chart_svg(self.chart))
        yield from self.study_parts()

    def study_parts(self) -> Iterator[Part]:
        found: SweepResult = self.result
        axis = found.study.axis
        unit = size_unit(max((p.report.peak_bytes for p in found.points if p.report is not None), default=2.0**30))
        share = "wait %" if found.study.case.lengths else "to loss s" if found.study.strategy else "MFU %"
        heads = [axis.name, "policy", "step s", share, "tok/s", unit.name, "vs first"]
        rows = [_cells(found.study, p, r, unit) for p, r in zip(found.points, found.relative, strict=True)]
        yield Table(found.study.title, heads, rows, words=2, breaks=1)
        if self.knee is not None:
            yield Notes([self.knee.why], "knee")
        full = found.full
        if full is not None and full.policy is not None:
            room = room_of(full.shard.case.on(full.shard.cluster))
            yield near_notes(room, full.policy, self.that_fit, f"at {axis.text(full.value)}: nearest")

    def footnotes(self, notes: Sequence[str]) -> Sequence[str]:
        return _footnotes([self.result], notes)


class SweepsAnswer(Answer, frozen=True, kw_only=True):
    """Several studies."""

    over: str
    weak: bool
    studies: Sequence[SweepAnswer]
    engine: str

    @property
    def exit_code(self) -> int:
        return min(study.exit_code for study in self.studies)

    @property
    def chart(self) -> Chart:
        return _chart([study.result for study in self.studies])

    def csv(self) -> bytes:
        return _csv(self.studies)

    def data(self) -> dict[str, Any]:
        studies = [{key: value for key, value in study.data().items() if key != "notes"} for study in self.studies]
        return Answer.data(with_fields(self, studies=())) | {"studies": studies}

    def parts(self) -> Iterator[Part]:
        yield Figure(lambda: chart_svg(self.chart))
        for study in self.studies:
            yield from study.study_parts()

    def footnotes(self, notes: Sequence[str]) -> Sequence[str]:
        return _footnotes([study.result for study in self.studies], notes)


ANSWERS = (SweepAnswer, SweepsAnswer)


def sweep_answer(
    found: Sequence[SweepResult], *, weak: bool, engine: str, notes: Sequence[str]
) -> SweepAnswer | SweepsAnswer:
    if len(found) == 1:
        return with_fields(_study(found[0]), weak=weak, engine=engine, notes=notes)
    return SweepsAnswer(
        over=found[0].study.axis.name, weak=weak, studies=list(map(_study, found)), engine=engine, notes=notes
    )


def _study(found: SweepResult) -> SweepAnswer:
    study, full = found.study, found.full
    near = [] if full is None or full.report is None else near_policies(found.nearest, full.report.step_s)
    return SweepAnswer(
        model=study.case.model.name, on=study.on, asked=study.asked, stack=study.case.stack.name, over=study.axis.name,
        sync=study.strategy or None, knee=found.knee, that_fit=near, result=found,
        points=[_point(study, p, relative) for p, relative in zip(found.points, found.relative, strict=True)],
    )  # fmt: skip


def _point(study: SweepStudy, point: SweepPoint, against: float | None) -> SweptPoint:
    report, job, data, axis = point.report, point.shard.case.job, point.data, study.axis.name
    made = SweptPoint(
        gpus=point.shard.cluster.gpus, seq_tokens=job.seq, global_sequences=job.global_batch,
        policy_code=None if point.policy is None else policy_code(point.policy), fits=point.runs,
        verdict=point.verdict, step_s=None if report is None else report.step_s,
        mfu_causal_half=None if report is None else report.mfu_causal_half,
        mfu_full_square=None if report is None else report.mfu_full_square,
        tokens_per_s_per_gpu=None if report is None else report.tokens_per_s_per_gpu,
        peak_bytes=None if report is None else report.peak_bytes, throughput_per_gpu_vs_first=against,
        policy=point.policy,
    )  # fmt: skip
    if axis == "network":
        made = with_fields(made, network_bytes_per_s=point.value)
    elif axis != "gpus":
        made = with_fields(made, **{axis: round(point.value)})
    if study.strategy:
        made = with_fields(made, sync=study.strategy, to_loss_s=point.to_loss_s)
    if point.shard.case.lengths is None:
        return made
    return with_fields(
        made, data_step_s=None if data is None else data.step_s,
        data_tokens_per_s_per_gpu=None if data is None else point.tokens_per_s_per_gpu,
        waiting=None if data is None else data.waiting, data_share=None if data is None else data.data,
    )  # fmt: skip


def _footnotes(found: Sequence[SweepResult], notes: Sequence[str]) -> list[str]:
    full = any(p.report is not None and not p.runs for s in found for p in s.points)
    shown = [p.report.policy for s in found for p in s.points if p.report is not None]
    return [*([legend_of(shown)] if shown else []), *notes, *(["! does not fit"] if full else [])]


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


def _csv(found: Sequence[SweepAnswer]) -> bytes:
    """One row for each point; with several studies their names come first."""
    rows = []
    for study in found:
        names = {} if len(found) == 1 else {"model": study.model, "on": study.on, "asked": study.asked}
        for point in study.points:
            fields: dict[str, Any] = msgspec.to_builtins(point)
            rows.append(names | {key: value for key, value in fields.items() if key != "policy"})
    text = io.StringIO(newline="")
    if rows:
        writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    return text.getvalue().encode()


def _chart(found: Sequence[SweepResult]) -> Chart:
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
