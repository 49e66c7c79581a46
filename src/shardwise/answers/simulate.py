"""`simulate`: one policy's step in time - every schedule compared, who waits, what fills the memory when."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar

import numpy as np
from msgspec import UNSET, Struct, UnsetType

from shardwise.answers._assumed import assumptions_of
from shardwise.answers._that_fit import FitsNear, fits_near
from shardwise.answers.answer import SIZES, Cell, FactList, Figure, Notes, Part, Text, shown, table
from shardwise.answers.cannot_run import CannotRunAnswer
from shardwise.question import PolicyQuestion
from shardwise.report.terminal import policy_text
from shardwise.report.tier import SIMULATION
from shardwise.report.timeline_figure import timeline_chart, timeline_svg
from shardwise.report.timeline_page import timeline_page
from shardwise.spec.policy import Policy
from shardwise.step.estimate.band import NO_BAND, band_of
from shardwise.step.simulate import Jitter, Simulation, Timeline
from shardwise.step.simulate.agree import gap_of
from shardwise.step.simulate.compare import compare
from shardwise.step.simulate.gantt import gantt, legend
from shardwise.step.simulate.outcome import ScheduleOutcome
from shardwise.step.simulate.timeline import KINDS, LANES, Peak
from shardwise.units import memory_text, time_text

MOST_LEVELS = 2000
"""changes of memory kept of a class; of more, the highest of each part of the step"""


class StagePeak(Struct, frozen=True, kw_only=True):
    stage: int
    time_s: float
    bytes: float
    kinds_bytes: Mapping[str, float]


class ClosedForm(Struct, frozen=True, kw_only=True):
    step_s: float
    gap: float
    """of the simulation over it"""
    parts_s: Mapping[str, float]
    """simulated less closed form"""
    why: Sequence[str]


class JitterSpread(Struct, frozen=True, kw_only=True):
    steps: int
    mean_s: float
    p50_s: float
    p99_s: float


class ScheduleRow(Struct, frozen=True, kw_only=True):
    """A schedule that can run, as people see it."""

    schedule: Annotated[str, shown("schedule")]
    vpp: Annotated[int, shown("chunks")]
    step_s: Annotated[float, shown("step ms", lambda s: f"{s * 1e3:,.1f}")]
    bubble_share: Annotated[float, shown("bubble", "percent")]
    idle_share: Annotated[float, shown("idle", "percent")]
    peak_bytes: Annotated[float, shown("peak", SIZES)]
    closed_form_s: Annotated[float, shown("closed form ms", lambda s: f"{s * 1e3:,.1f}")]


class RankClassRow(Struct, frozen=True, kw_only=True):
    """A class of ranks."""

    name: str
    stage: int
    gpus: int
    busy_share: float
    peak_bytes: float


class MemoryLevels(Struct, frozen=True, kw_only=True):
    time_s: Sequence[float]
    bytes: Sequence[float]


class TaskColumns(Struct, frozen=True, kw_only=True):
    """Every task of the step as columns, and the memory over time."""

    kinds: Sequence[str]
    lanes: Sequence[str]
    limit_bytes: float
    rows: Sequence[RankClassRow]
    rank: Sequence[int]
    lane: Sequence[int]
    kind: Sequence[int]
    micro_batch: Sequence[int]
    chunk: Sequence[int]
    start_s: Sequence[float]
    end_s: Sequence[float]
    memory: Sequence[MemoryLevels]


class SimulateAnswer(FitsNear, frozen=True, kw_only=True):
    only_shown: ClassVar[tuple[str, ...]] = ("timeline", "steady_s", "assumptions")
    origin_first: ClassVar[bool] = True

    legal: bool
    fits: bool
    tier: str
    model: str
    cluster: str
    gpus: int
    stack: str
    seq_tokens: int
    global_sequences: int
    policy: Policy
    schedule: str
    micro_batches: int
    tasks: int
    rank_classes: int
    step_s: float
    step_low_s: float | None
    step_high_s: float | None
    error_basis: str
    pipeline_s: float
    bubble_share: float
    idle_share: float
    active: Sequence[float]
    busy_share: Sequence[float]
    peak_bytes: Sequence[float]
    """of each stage: the fullest of the classes that hold it"""
    peaks: Sequence[StagePeak]
    schedules: Sequence[ScheduleOutcome]
    closed_form: ClosedForm
    jitter: JitterSpread | None
    spans: TaskColumns | UnsetType = UNSET
    policy_origin: str
    timeline: Any = UNSET
    """a Timeline"""
    steady_s: Any = UNSET
    """the step without stragglers"""
    assumptions: Any = UNSET
    limit_bytes: float

    @property
    def exit_code(self) -> int:
        return 0 if self.fits else 1

    def footnotes(self, notes: Sequence[str]) -> Sequence[str]:
        return [*notes, *self.assumptions]

    @property
    def title(self) -> str:
        return f"{self.model} on {self.cluster}: {policy_text(self.policy)}, schedule {self.schedule}"

    def svg(self) -> str:
        return timeline_svg(self.timeline, title=self.title, limit_bytes=self.limit_bytes)

    def page(self) -> str:
        """The figure with the schedules' table, as one HTML file."""
        return timeline_page(
            self.svg(), self.schedules, title=self.title, shown=self.schedule, limit_bytes=self.limit_bytes
        )

    def parts(self) -> Iterator[Part]:
        yield FactList(f"{self.model} on {self.cluster}: one step in time", self._facts())
        lines = (*gantt(self.timeline), *legend(self.timeline))
        yield Figure(self.svg, [Text("\n".join(lines))])
        can = [row for row in self.schedules if row.step_s is not None]
        yield table("schedules, no stragglers", can, row=ScheduleRow)
        cannot = [f"{row.schedule}: {row.why_not}" for row in self.schedules if row.step_s is None]
        yield Notes(cannot, "cannot run this")
        yield Notes(self.closed_form.why, f"why simulation and closed form differ by {self.closed_form.gap:+.1%}")
        yield from self.near(self.policy)

    def _facts(self) -> list[tuple[str, Cell]]:
        closed, steady = self.closed_form, self.steady_s
        fullest = max(self.peaks, key=lambda peak: peak.bytes)
        slower, jitter = self.step_s / steady - 1.0, self.jitter
        return [
            ("policy", f"{policy_text(self.policy)}, schedule {self.schedule}"),
            ("step", f"{time_text(steady)}; closed form {time_text(closed.step_s)} ({closed.gap:+.1%} simulated)"),
            ("error", self.error_basis),
            ("straggler", f"step {time_text(self.step_s)}, {slower:+.1%}" if self.step_s != steady else None),
            ("pipeline", f"{self.micro_batches:,} micro-batches, bubble {self.bubble_share:.1%} of the step; an "
                         f"average GPU idle {self.idle_share:.1%}"),
            ("memory", _peak_text(fullest, self.fits)),
            ("jitter", None if jitter is None else
             f"{jitter.steps:,} steps: p50 {time_text(jitter.p50_s)}, p99 {time_text(jitter.p99_s)}"),
        ]  # fmt: skip


ANSWERS = (SimulateAnswer, CannotRunAnswer)


def simulate_answer(
    ask: PolicyQuestion, found: Simulation, *, straggler: bool, jitter: Jitter | None, slices: int, spans: bool
) -> SimulateAnswer:
    """`slices`: parts of the pipeline's time in `active`; `spans`: also every task."""
    case, timeline, gap = ask.case, found.timeline(), gap_of(found)
    peaks, band = timeline.peaks(), band_of(case)
    samples = None if jitter is None else found.step_samples(jitter)
    low, high = (None, None) if band is None else band.around(found.step_s)
    room = ask.cluster.gpu.memory_bytes - case.stack.memory.reserve_bytes
    fits = max(peak.bytes for peak in peaks) <= room
    return SimulateAnswer(
        legal=True, fits=fits, tier=SIMULATION, model=ask.model.name, cluster=ask.cluster.name, gpus=ask.policy.gpus,
        stack=ask.stack.name, seq_tokens=ask.job.seq, global_sequences=ask.job.global_batch, policy=ask.policy,
        schedule=ask.policy.schedule, micro_batches=found.program.micro_batches,
        tasks=len(found.program.rank) * len(found.pipelines), rank_classes=timeline.ranks, step_s=found.step_s,
        step_low_s=low, step_high_s=high, error_basis=NO_BAND if band is None else str(band),
        pipeline_s=found.pipeline_end_s, bubble_share=timeline.bubble_share(), idle_share=timeline.idle_share(),
        active=timeline.active(slices).tolist(), busy_share=timeline.busy_share().tolist(),
        peak_bytes=_per_stage(timeline, peaks),
        peaks=[StagePeak(stage=int(stage), time_s=peak.time_s, bytes=peak.bytes, kinds_bytes=peak.kinds)
               for stage, peak in zip(timeline.stage, peaks, strict=True)],
        schedules=compare(case, ask.policy),
        closed_form=ClosedForm(step_s=gap.closed_s, gap=gap.share, parts_s=gap.parts_s, why=gap.why),
        jitter=None if samples is None else _spread(samples), spans=_spans(timeline, room) if spans else UNSET,
        policy_origin=ask.origin,
        notes=[*ask.notes, *map(str, assumptions_of(ask, ask.case, ask.policy))],
        timeline=timeline, steady_s=gap.simulated_s,
        assumptions=_assumptions(found, straggler), limit_bytes=room,
        **fits_near(case, ask.policy, gap.closed_s, fits=fits),
    )  # fmt: skip


def _per_stage(timeline: Timeline, peaks: list[Peak]) -> list[float]:
    """The fullest of the classes that hold a stage."""
    most = np.zeros(int(timeline.stage.max()) + 1)
    np.maximum.at(most, timeline.stage, [peak.bytes for peak in peaks])
    return most.tolist()


def _spread(samples: Any) -> JitterSpread:
    low, high = np.quantile(samples, [0.5, 0.99])
    return JitterSpread(steps=len(samples), mean_s=float(samples.mean()), p50_s=float(low), p99_s=float(high))


def _peak_text(peak: StagePeak, fits: bool) -> str:
    largest = sorted(((size, kind) for kind, size in peak.kinds_bytes.items() if size > 0), reverse=True)
    parts = ", ".join(f"{kind} {memory_text(size)}" for size, kind in largest[:4])
    return f"{memory_text(peak.bytes)} on stage {peak.stage} ({parts})" + ("" if fits else ": does not fit")


def _assumptions(found: Simulation, straggler: bool) -> list[str]:
    lines = [
        f"equal GPUs are one: {len(found.pipelines) * found.program.pp} classes stand for {found.policy.gpus:,} GPUs",
        "a forward allocates its saved activations at its start, a backward frees it at its end",
        "bubble: the busiest GPU waits for other stages; idle: an average GPU waits, also for those with more to do",
    ]
    if found.costs.hidden_share < 1 and (found.costs.overlap_grad or found.costs.overlap_param):
        lines.append(
            f"overlap: at most {found.costs.hidden_share:.0%} of a collective hides, and slows compute by "
            f"{found.costs.slowdown:.0%} of that"
        )
    if straggler:
        lines.append("a slow GPU holds up its tensor-parallel group; other pipelines wait for it in the reduction")
        if len(found.pipelines) > 1:
            lines.append("lines with a star are the pipelines with the straggler")
    return lines


def _spans(timeline: Timeline, limit_bytes: float) -> TaskColumns:
    """Rows and spans as the figure has them: a backward begins where its recompute ends."""
    chart = timeline_chart(timeline, title="", limit_bytes=limit_bytes)
    spans = chart.spans
    rows = zip(chart.rows, timeline.stage, timeline.gpus, timeline.busy_share(), timeline.peaks(), strict=True)
    return TaskColumns(
        kinds=KINDS, lanes=LANES, limit_bytes=limit_bytes,
        rows=[
            RankClassRow(name=row.name, stage=int(stage), gpus=int(gpus), busy_share=float(busy), peak_bytes=peak.bytes)
            for row, stage, gpus, busy, peak in rows
        ],
        rank=spans.row.tolist(), lane=spans.lane.tolist(), kind=spans.kind.tolist(),
        micro_batch=timeline.spans.micro_batch.tolist(), chunk=timeline.spans.chunk.tolist(),
        start_s=_rounded(spans.start), end_s=_rounded(spans.end),
        memory=[_levels(timeline, rank) for rank in range(timeline.ranks)],
    )  # fmt: skip


def _levels(timeline: Timeline, rank: int) -> MemoryLevels:
    times, levels = timeline.levels(rank)
    total = levels.sum(axis=1)
    if len(times) > MOST_LEVELS:
        edges = np.linspace(0, len(times), MOST_LEVELS + 1).astype(int)[:-1]
        times, total = times[edges], np.maximum.reduceat(total, edges)
    return MemoryLevels(time_s=_rounded(times), bytes=[float(round(size)) for size in total])


def _rounded(times: Any) -> list[float]:
    """To the nanosecond: shorter than any task, and half the bytes."""
    found: list[float] = np.round(times, 9).tolist()
    return found
