"""`why`: where a measured run loses its time against its prediction, each cause with its cure."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated

from msgspec import Struct
from msgspec.structs import asdict

from shardwise.answers._likely import LikelyCause, likely_causes, likely_table
from shardwise.answers._logged_phases import LoggedPhase, phases_of_log
from shardwise.answers._why_question import LogMeasured, RunAsMeant, TraceMeasured, WhyQuestion
from shardwise.answers.answer import Answer, Cell, FactList, Notes, Part, Table, shown, table
from shardwise.answers.check import PolicyChange, policy_changes
from shardwise.measured.diagnose.causes import Cause
from shardwise.measured.diagnose.clocks import ClockFinding
from shardwise.measured.diagnose.rank_waits import SlowGroup
from shardwise.measured.diagnose.step_spans import StepSpans
from shardwise.measured.diagnose.why_slow import FallStep, WhySlow
from shardwise.programs.formats import Format, Launch
from shardwise.programs.formats._cures import cure_of
from shardwise.programs.formats._improve import improvements
from shardwise.report.terminal import policy_code
from shardwise.spec.policy import Policy
from shardwise.units import gib, time_text

SHOWN = 8
"""causes on the screen; JSON has all"""
CURED = 3
"""of them with their cure"""
LEAST = 5e-3
"""share of a step: a smaller loss is not shown and has no cure"""
BAR = 24


def _dollars_a_day(usd: tuple[float, float]) -> str:
    return f"{usd[0]:,.0f}–{usd[1]:,.0f}"


def _tenths_of_ms(seconds: float) -> str:
    return f"{seconds * 1e3:,.1f}"


class WhyCure(Struct, frozen=True, kw_only=True):
    advice: str
    options: Sequence[str]
    """lines of the program's own file, as they should read"""
    policy: Policy | None
    step_change: float | None
    """share of the predicted step: below zero is faster"""


class WhyCause(Struct, frozen=True, kw_only=True):
    cause: str
    what: Annotated[str, shown("cause")]
    where: Annotated[str | None, shown("where")]
    evidence: str | None
    measured_s: Annotated[float | None, shown("ms", _tenths_of_ms)]
    predicted_s: Annotated[float | None, shown("predicted", _tenths_of_ms)]
    lost_s: Annotated[float | None, shown("lost ms", _tenths_of_ms)]
    share: Annotated[float, shown("% of step", "percent")]
    usd_per_day: Annotated[tuple[float, float] | None, shown("USD/day", _dollars_a_day)]
    cure: WhyCure | None

    def __str__(self) -> str:
        assert self.cure is not None
        evidence = f" ({self.evidence})" if self.evidence else ""
        where = f", {self.where}" if self.where else ""
        options = f". Here: {', '.join(self.cure.options)}" if self.cure.options else ""
        change = self.cure.step_change
        step = "" if change is None else f"; the step predicted {change:+.1%}"
        return f"{self.what}{where}{evidence}: {self.cure.advice}{options}{step}"


class StepFinding(Struct, frozen=True, kw_only=True):
    """A measured step against its prediction; seconds are null where only rates are known."""

    step_s: float | None
    predicted_step_s: float | None
    predicted_low_s: float | None
    predicted_high_s: float | None
    ideal_step_s: float | None
    slower: float | None
    within_band: bool | None
    causes: Sequence[WhyCause]
    """the largest loss first"""
    fall: Sequence[FallStep]
    """from the ideal to the measured step"""
    notes: Sequence[str]

    def step_text(self) -> str:
        step = time_text(self.step_s or 0.0)
        if self.predicted_step_s is None or self.slower is None:
            return step
        band = "inside its band" if self.within_band else "outside of its band"
        low, high = time_text(self.predicted_low_s or 0.0), time_text(self.predicted_high_s or 0.0)
        return f"{step}, predicted {time_text(self.predicted_step_s)} ({self.slower:+.1%}, {band} of {low} to {high})"

    def parts(self, title: str, facts: Sequence[tuple[str, Cell]]) -> Iterator[Part]:
        lost = [cause for cause in self.causes if cause.share > LEAST]
        yield FactList(title, [*facts, ("lost", None if lost else "nothing above half a percent of the step")])
        if lost:
            yield table("lost, the largest first", lost[:SHOWN], words=2, breaks=0, bars=("% of step",), sparse=True)
            yield Notes([str(cause) for cause in lost[:CURED] if cause.cure], "what to do")
        if self.fall:
            most = max(abs(step.seconds) for step in self.fall) or 1.0
            yield Table("from the ideal step to the measured step", ("", "", "ms", "step ms"), [
                (step.what, ("#" if step.seconds > 0 else "-") * max(round(BAR * abs(step.seconds) / most), 1),
                 f"{step.seconds * 1e3:+,.1f}", f"{step.total_s * 1e3:,.1f}")
                for step in self.fall
            ], words=2, breaks=0, bars=("ms", "step ms"))  # fmt: skip
        if self.notes:
            yield Notes(self.notes)


class RankFinding(Struct, frozen=True, kw_only=True):
    rank: str
    step_s: float
    parts_s: Mapping[str, float]
    hidden_s: Mapping[str, float]
    kernels_s: Mapping[str, float]
    last_share: float | None
    """of the collectives, how many it was last to join"""
    caused_s: float | None
    """others' waiting for it in a step"""


class ProductFinding(Struct, frozen=True, kw_only=True):
    """GEMMs of one shape against their curve."""

    m: int
    n: int
    k: int
    dtype: str
    calls: int
    measured_s: float
    curve_s: float
    lost_s: float

    def __str__(self) -> str:
        ratio = self.measured_s / self.curve_s
        return (f"{self.m:,} x {self.n:,} x {self.k:,} {self.dtype}, {self.calls:,} calls: "
                f"{self.measured_s * 1e3:,.3f} ms each, {ratio:.2f} times its curve")  # fmt: skip


class TraceFinding(StepFinding, frozen=True, kw_only=True):
    steps: int
    slow_rank: str | None
    ranks: Sequence[RankFinding]
    slow_groups: Sequence[SlowGroup]
    products: Sequence[ProductFinding]


class LogFinding(StepFinding, frozen=True, kw_only=True):
    file: str
    program: str
    records: int
    dropped: int
    """records at the beginning that do not count"""
    dropped_why: str
    in_seconds: bool
    """false where the log has rates only"""
    spread: float
    restarts: int
    peak_bytes: float | None
    phases: Sequence[LoggedPhase]
    """of reinforcement learning"""
    likely: Sequence[LikelyCause]
    """of the difference from the prediction, by how far published runs err"""


class StuckGroup(Struct, frozen=True, kw_only=True):
    """A collective that some ranks never joined."""

    group: str
    collective: int
    op: str
    missing: Sequence[str]
    why: str

    def __str__(self) -> str:
        missing = f": not {', '.join(self.missing)}" if self.missing else ""
        return f"{self.op or 'collective'} {self.collective} of group {self.group}{missing}; {self.why}"


class GpuClockFinding(Struct, frozen=True, kw_only=True):
    gpu: str
    device: str | None
    hz: float
    samples: int
    reason: str | None


class ClockAnswer(Struct, frozen=True, kw_only=True):
    boost_hz: float | None
    counted_hz: float | None
    """assumed by the prediction"""
    middle_hz: float
    slow_gpu: str | None
    slowest: str
    others_hz: float
    gpus: Sequence[GpuClockFinding]

    def facts(self) -> Iterator[tuple[str, Cell]]:
        yield "GPUs", f"{len(self.gpus)}, the middle one at {self.middle_hz / 1e6:,.0f} MHz"
        yield "slowest", self.slowest
        if self.slow_gpu is not None:
            hz = next(gpu.hz for gpu in self.gpus if gpu.gpu == self.slow_gpu)
            yield "apart", f"{self.slow_gpu} is {1 - hz / self.others_hz:.0%} below the others, which wait"


class WhyAnswer(Answer, frozen=True, kw_only=True):
    model: str | None
    cluster: str | None
    policy: Policy | None
    target: str | None
    usd_per_day: tuple[float, float] | None
    """rent of all GPUs"""
    trace: TraceFinding | None
    logs: Sequence[LogFinding]
    clocks: ClockAnswer | None
    dumps: int
    stuck: Sequence[StuckGroup]
    slower_than_band: bool
    improvements: Sequence[PolicyChange]
    """what `check` would change in the configuration"""
    not_read: Sequence[str]
    cannot_say: Sequence[str]
    spans: StepSpans | None = None

    @property
    def exit_code(self) -> int:
        return 1 if self.slower_than_band or self.stuck else 0

    def parts(self) -> Iterator[Part]:
        run = None if self.policy is None else f"{self.model} on {self.cluster}, {policy_code(self.policy)}"
        if (trace := self.trace) is not None:
            facts: list[tuple[str, Cell]] = [("step", trace.step_text()), ("run", run)]
            facts += [
                ("ranks", f"{len(trace.ranks)}, {trace.steps} step{'s' * (trace.steps != 1)} each"),
                ("slow rank", trace.slow_rank),
            ]
            yield from trace.parts("where the time of a traced step went", facts)
        for log in self.logs:
            yield from log.parts("where step time is lost", list(_log_facts(log, run)))
            if log.phases:
                yield table("phases of a step", log.phases)
            yield from likely_table(log.likely)
        if trace is not None and trace.products:
            yield Notes([str(each) for each in trace.products[:CURED]], "GEMMs against their curve")
        if self.dumps:
            groups = [str(each) for each in self.stuck] or ["no group stands still"]
            yield Notes(groups, f"flight recorders of {self.dumps} ranks")
        if self.clocks is not None:
            yield FactList("clocks of GPUs at work", list(self.clocks.facts()))
        if self.improvements:
            yield table("what `check` would change in the configuration", self.improvements, breaks=0)
        for title, lines in (("not read", self.not_read), ("not answered by these files", self.cannot_say)):
            if lines:
                yield Notes(lines, title)


def _log_facts(log: LogFinding, run: str | None) -> Iterator[tuple[str, Cell]]:
    yield "log", f"{log.file}: {log.program}, {log.records} records"
    yield "run", run
    yield "step", log.step_text() if log.in_seconds else None
    yield "left out", f"{log.dropped} at the beginning: {log.dropped_why}" if log.dropped else "none"
    yield "spread", f"{log.spread:.1%} around the level"
    yield "memory", f"{gib(log.peak_bytes)} GiB at the peak" if log.peak_bytes else None


ANSWERS = (WhyAnswer,)


def why_answer(ask: WhyQuestion) -> WhyAnswer:
    ran = ask.ran
    launch, form = (ran.launch, ran.form) if ran else (None, None)
    findings = [*([ask.trace.found] if ask.trace else []), *(log.found for log in ask.logs)]
    return WhyAnswer(
        model=launch.case.model.name if launch else None, cluster=launch.case.cluster.name if launch else None,
        policy=launch.policy if launch else None, target=form.name if form else None, usd_per_day=ask.rent_usd,
        trace=None if ask.trace is None else _trace(ask, ask.trace), logs=[_log(ask, each) for each in ask.logs],
        clocks=None if ask.clocks is None else _clocks(ask.clocks), dumps=ask.dumps,
        stuck=[StuckGroup(group=each.group, collective=each.number, op=each.op, missing=each.missing, why=each.why)
               for each in ask.stuck],
        slower_than_band=any(each.expected is not None and each.step_s > each.expected.high_s for each in findings),
        improvements=_improvements(form, launch) if form and launch else [],
        not_read=ask.left_out, cannot_say=_cannot_say(ask, findings), notes=ran.notes if ran else (),
    )  # fmt: skip


def _improvements(form: Format, launch: Launch) -> list[PolicyChange]:
    return [each for each in policy_changes(launch, improvements(form, launch)) if each is not None]


def _cannot_say(ask: WhyQuestion, findings: Sequence[WhySlow]) -> list[str]:
    """Each with the file that would answer it."""
    lines = [
        f"how good a step of {time_text(each.step_s)} is: the model's work alone takes "
        f"{time_text(each.expected.ideal_s)} at the GPUs' peak; check --model, --seq, --global-batch and --on"
        for each in findings
        if each.expected and each.in_seconds and each.step_s < each.expected.ideal_s
    ]
    if ask.trace is None and ask.logs:
        timed = any(each.log.timers for each in ask.logs)
        has = "timers of large parts" if timed else "whole steps"
        lines.append(f"which part of a step is slow: a log has {has} only; give a trace of torch.profiler or nsys")
        lines.append("which rank or link is slow: give traces of several ranks")
    elif ask.trace is not None and len(ask.trace.measured.ranks) == 1:
        lines.append("which rank is slow: give traces of several ranks")
    if ask.trace is not None and not ask.logs:
        lines.append("stalls, drift and restarts: a trace is a few steps; give the log too")
    if ask.ran is None and findings:
        lines.append("the expected step: write --config FILE --on CLUSTER, or --model, --on and the policy's flags")
    if ask.clocks is None and findings and not (ask.trace and ask.trace.simulated):
        lines.append("clocks: give a log of `nvidia-smi --query-gpu=...,clocks.sm --format=csv -l 1`, DCGM or W&B")
    if ask.rent_usd is None and findings:
        lines.append("dollars: the GPUs are not known; write --on")
    return lines


def _step(ask: WhyQuestion, found: WhySlow, notes: Sequence[str]) -> StepFinding:
    expected = found.expected
    return StepFinding(
        step_s=found.step_s if found.in_seconds else None, predicted_step_s=expected.step_s if expected else None,
        predicted_low_s=expected.low_s if expected else None, predicted_high_s=expected.high_s if expected else None,
        ideal_step_s=expected.ideal_s if expected else None, slower=found.slower, within_band=found.within_band,
        causes=[_cause(ask, found, cause) for cause in found.causes],
        fall=found.fall if found.in_seconds else [], notes=notes,
    )  # fmt: skip


def _cause(ask: WhyQuestion, found: WhySlow, cause: Cause) -> WhyCause:
    lost = found.lost_s(cause)
    share = lost / found.step_s
    return WhyCause(
        cause=cause.code, what=cause.what, where=cause.where or None, evidence=cause.evidence or None,
        measured_s=cause.seconds if found.in_seconds else None, predicted_s=cause.predicted_s,
        lost_s=lost if found.in_seconds else None, share=share,
        usd_per_day=None if ask.rent_usd is None else (share * ask.rent_usd[0], share * ask.rent_usd[1]),
        cure=_cure(ask.ran, cause) if share > LEAST else None,
    )  # fmt: skip


def _cure(ran: RunAsMeant | None, cause: Cause) -> WhyCure:
    cure = cure_of(cause, ran.form if ran else None, ran.launch if ran and ran.form else None)
    return WhyCure(advice=cure.advice, options=cure.options, policy=cure.policy, step_change=cure.step_change)


def _trace(ask: WhyQuestion, trace: TraceMeasured) -> TraceFinding:
    measured, waits = trace.measured, trace.measured.waits
    ranks = [
        RankFinding(
            rank=each.rank, step_s=each.step_s, parts_s=each.parts, hidden_s=each.hidden, kernels_s=each.families,
            last_share=waits.last_share[place] if waits else None,
            caused_s=waits.caused_s[place] / each.steps if waits else None,
        )
        for place, each in enumerate(measured.ranks)
    ]  # fmt: skip
    products = [
        ProductFinding(
            m=each.product.m, n=each.product.n, k=each.product.k, dtype=each.product.dtype, calls=each.product.calls,
            measured_s=each.measured_s, curve_s=each.curve_s, lost_s=each.lost_s,
        )
        for each in trace.products
    ]  # fmt: skip
    return TraceFinding(
        **asdict(_step(ask, trace.found, measured.notes)), steps=measured.steps, slow_rank=measured.slow_rank or None,
        ranks=ranks, products=products,
        slow_groups=waits.slow_groups if waits else (),
    )  # fmt: skip


def _log(ask: WhyQuestion, each: LogMeasured) -> LogFinding:
    log, pace = each.log, each.pace
    peaks = [step.peak_bytes for step in log.steps if step.peak_bytes]
    return LogFinding(
        **asdict(_step(ask, each.found, pace.notes)), file=log.name, program=log.program, records=pace.records,
        dropped=pace.dropped, dropped_why=pace.dropped_why, in_seconds=pace.exact, spread=pace.spread,
        restarts=pace.restarts, peak_bytes=max(peaks, default=None), phases=list(phases_of_log(each)),
        likely=[] if any(step.phases for step in log.steps)
        else likely_causes(ask.ran, each.found.step_s if pace.exact else None),
    )  # fmt: skip


def _clocks(clocks: ClockFinding) -> ClockAnswer:
    slowest = clocks.slowest
    return ClockAnswer(
        boost_hz=clocks.boost_hz, counted_hz=clocks.counted_hz, middle_hz=clocks.middle_hz,
        slow_gpu=clocks.odd.gpu if clocks.odd else None, slowest=f"{slowest.gpu}: {clocks.told(slowest.hz)}",
        others_hz=clocks.others_hz,
        gpus=[GpuClockFinding(gpu=gpu.gpu, device=gpu.device or None, hz=gpu.hz, samples=gpu.samples,
                              reason=gpu.reason or None) for gpu in clocks.gpus],
    )  # fmt: skip
