"""`operate`: a run with failures, saves and restarts: its days, where the time goes, and what would help."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated

from msgspec import Struct

from shardwise.answers.answer import Answer, FactList, Figure, Part, Table, shown, table
from shardwise.question.studies.money import money_of, price_line
from shardwise.report.charts import chart_svg
from shardwise.report.course_figure import against_chart
from shardwise.report.report import Money
from shardwise.report.terminal import (
    days_text,
    dollars_range,
    dollars_text,
    legend_of,
    policy_code,
)
from shardwise.report.tier import CLOSED_FORM, SAMPLED
from shardwise.spec.policy import Policy
from shardwise.step.estimate.state import saved_state
from shardwise.step.operate.failures import published
from shardwise.step.operate.goodput import PARTS, Goodput
from shardwise.step.operate.intervals import best_s, daly_s, young_s
from shardwise.step.operate.published import published_times
from shardwise.step.operate.run import Operation, slow_node, ways, worth
from shardwise.step.operate.sampled import SampledRuns, Sampling
from shardwise.units import share_text, time_text

NO_LAWS = ("interval_young_s", "interval_daly_s", "interval_exact_s")
MOST_STOPS = 1000
"""failures of one run that an answer lists"""
DAY_S, HOUR_S = 86_400.0, 3600.0
PARTS_TEXT = {
    "work": "steps that are kept", "saves": "waiting for saves", "lost work": "steps repeated after failures",
    "detect": "until a failure is noticed", "schedule": "until machines are there", "start": "groups and first steps",
    "load": "reading the checkpoint", "planned": "planned restarts", "waiting": "waiting for a node",
}  # fmt: skip


@dataclass(frozen=True)
class OperateQuestion:
    run: Operation
    tokens: float
    policy: Policy | None
    """None where a measured step was given and nothing fits"""
    measured_step: bool
    step_range: tuple[float, float] | None
    """shares of the predicted step between which 80 % of measured ones lay; None: it was measured, or nobody knows"""
    sampling: Sampling
    rent: float | None
    left: float | None
    """share of the speed that is kept with as many nodes away as are on average"""

    @property
    def needs_draws(self) -> bool:
        """The closed form knows neither spares that run out nor failures that cluster."""
        return self.sampling.spares is not None or self.sampling.shape != 1.0

    def money(self, seconds: float) -> Money:
        return money_of(self.run.cluster, self.tokens, self.tokens / seconds, self.rent)


class SampledRun(Struct, frozen=True, kw_only=True):
    """One of the runs drawn."""

    seconds: float
    failed_s: Sequence[float]
    back_s: Sequence[float]
    """when it went on"""


class IntervalShare(Struct, frozen=True, kw_only=True):
    interval_s: float
    goodput: float


class IntervalLaw(Struct, frozen=True, kw_only=True):
    """The best work between two saves by one law."""

    law: Annotated[str, shown("law")]
    best_s: Annotated[float, shown("best", "time")]
    landed_s: Annotated[float, shown("once saves land", "time")]
    """no shorter than a save takes to land"""
    goodput: Annotated[float, shown("useful", share_text)]


class OperateWay(Struct, frozen=True, kw_only=True):
    way: Annotated[str, shown("method")]
    needs: Annotated[str, shown("needs")]
    goodput: Annotated[float, shown("useful", share_text)]
    seconds: Annotated[float, shown("days", days_text)]


class OperateChange(Struct, frozen=True, kw_only=True):
    """What one change saves over the run."""

    what: Annotated[str, shown("change")]
    seconds: Annotated[float, shown("days saved", lambda seconds: f"{seconds / DAY_S:,.3g}")]
    usd: Annotated[tuple[float, float] | None, shown("USD saved", dollars_range)]


class FailureRateRow(Struct, frozen=True, kw_only=True):
    """The same run at a published rate of failures."""

    rate: Annotated[str, shown("rate")]
    per_thousand_node_days: Annotated[float, shown("per 1,000 node-days", lambda value: f"{value:.2f}")]
    between_failures_s: Annotated[float, shown("one every", "time")]
    goodput: Annotated[float, shown("useful", share_text)]
    seconds: Annotated[float, shown("days", days_text)]


class SlowNodeFacts(Struct, frozen=True, kw_only=True):
    """A node that is slow without failing: every other waits for it."""

    chance: float
    factor: float
    replace_after_s: float


class OperateAnswer(Answer, frozen=True, kw_only=True):
    model: str
    cluster: str
    gpus: int
    global_sequences: int
    tokens: float
    tier: str
    policy: Policy | None
    step_s: float
    step_measured: bool
    step_range: tuple[float, float] | None
    """of a predicted step: 80 % of measured ones lay between step_s times 1 + the first and 1 + the second"""
    ideal_s: float
    """if nothing ever failed"""
    seconds: float
    """of the mean run: by the closed form, unless spares can run out or failures cluster"""
    seconds_p10: float
    seconds_p50: float
    seconds_p90: float
    sampled_mean_s: float
    sampled_runs: int
    sampled_run: SampledRun
    goodput: float
    """share of the time that goes into steps that are kept (ETTR)"""
    lost_gpu_hours: float
    """of all GPUs, for what is not work: repeated steps, restarts, saves, waiting"""
    failures: float
    planned_restarts: float
    between_failures_s: float
    failure_rates: str
    failure_source: str
    failures_per_thousand_node_days: float
    checkpoint_bytes: float
    save: str
    save_stall_s: float
    save_lands_s: float
    interval_s: float
    interval_curve: Sequence[IntervalShare]
    """other intervals around the one that is taken, in closed form"""
    intervals: Sequence[IntervalLaw]
    interval_young_s: float | None
    interval_daly_s: float | None
    interval_exact_s: float | None
    detect_s: float
    schedule_s: float
    start_s: float
    load_s: float
    shares: Mapping[str, float]
    """of all time, by what it goes into"""
    ways: Sequence[OperateWay]
    worth: Sequence[OperateChange]
    published_rates: Sequence[FailureRateRow]
    spares_needed: int
    slow_node: SlowNodeFacts
    energy_j: float
    electricity_usd: float
    usd: tuple[float, float] | None
    failures_usd: tuple[float, float] | None
    """of it, for what is not work"""

    def parts(self) -> Iterator[Part]:
        fails = self.failures_per_thousand_node_days > 0
        idle = () if fails else ("saves", "restart")
        lines = [(name, text) for name, text in self._facts() if name not in idle]
        yield FactList(f"{self.model}, {self.tokens:,.4g} tokens on {self.cluster}", lines)
        rows = sorted(((part, share) for part, share in self.shares.items() if share > 5e-4), key=lambda row: -row[1])
        yield Table("where the time goes", ("part", "", "share", "days"), [
            (PARTS_TEXT[part], "#" * round(30 * share), share_text(share), f"{share * self.seconds / DAY_S:,.3g}")
            for part, share in rows
        ], words=2, bars=("share",))  # fmt: skip
        if not fails:
            return
        if self.intervals:
            yield Figure(self._curve_svg)
            yield table("work between two saves", self.intervals)
        yield table("other ways to keep it running", self.ways, words=2, breaks=1)
        yield table("improvements", self.worth, bars=("days saved",))
        yield table("at published rates of failure", self.published_rates, bars=("per 1,000 node-days",))

    def _facts(self) -> Iterator[tuple[str, str]]:
        unit, name = (DAY_S, "days") if self.seconds >= DAY_S else (HOUR_S, "hours")
        low, high = self.seconds_p10 / unit, self.seconds_p90 / unit
        yield "run", (f"{self.seconds / unit:,.4g} {name}, 80% of runs within {low:,.4g} .. {high:,.4g}; "
                      f"{self.ideal_s / unit:,.4g} if nothing ever failed")  # fmt: skip
        yield "useful", f"{share_text(self.goodput)} of the time (ETTR); {self.lost_gpu_hours:,.0f} GPU hours are lost"
        stops = (f"failures: {self.failures:,.3g}, one every {time_text(self.between_failures_s)} of running, and "
                 f"{self.planned_restarts:,.0f} planned restarts")  # fmt: skip
        yield "stops", stops if self.failures else "none: nothing fails"
        code = "" if self.policy is None else f", {policy_code(self.policy)}"
        known = "" if self.step_range is None else " ({:+.0%} .. {:+.0%})".format(*self.step_range)
        yield "step", f"{time_text(self.step_s)}{', as given' if self.step_measured else known + code}"
        lands = f", lands {time_text(self.save_lands_s)} later" if self.save_lands_s else ""
        yield "saves", (f"{self.save}, every {time_text(self.interval_s)}: {self.checkpoint_bytes / 1e9:,.4g} GB, the "
                        f"run waits {time_text(self.save_stall_s)}{lands}")  # fmt: skip
        whole = self.detect_s + self.schedule_s + self.start_s + self.load_s
        yield "restart", (f"{time_text(whole)}: noticed {time_text(self.detect_s)}, machines "
                          f"{time_text(self.schedule_s)}, groups and first steps {time_text(self.start_s)}, load "
                          f"{time_text(self.load_s)}")  # fmt: skip
        sites = published_times().energy
        best, worst = (self.energy_j / 3.6e6 * p * u for p, u in zip(sites.pue, sites.usd_per_kwh, strict=True))
        yield "price", (f"{dollars_range(self.usd)} USD rent, {dollars_range(self.failures_usd)} of it for failures; "
                        f"{self.energy_j / 3.6e9:,.3g} MWh, {dollars_text(self.electricity_usd)} USD of electricity "
                        f"({dollars_text(best)}–{dollars_text(worst)} from the best site to the worst)")  # fmt: skip

    def _curve_svg(self) -> str:
        shares = [(each.interval_s / 60, 100 * each.goodput) for each in self.interval_curve]
        taken = (self.interval_s / 60, f"taken: {time_text(self.interval_s)}")
        title = "goodput against the work between two saves"
        return chart_svg(against_chart(title, shares, "minutes between saves", "useful, %", taken))


ANSWERS = (OperateAnswer,)


def operate_answer(ask: OperateQuestion, notes: Sequence[str] = ()) -> OperateAnswer:
    run, goodput, drawn = ask.run, ask.run.goodput(), ask.run.sampled(ask.sampling)
    low, middle, high = drawn.spread(ask.step_range, ask.sampling.seed)
    seconds = float(drawn.seconds.mean()) if ask.needs_draws else run.work_s / goodput.share
    money, slow, laws = ask.money(seconds), slow_node(run), _laws(run)
    fails = bool(run.rates.per_gpu)
    return OperateAnswer(
        model=run.model.name, cluster=run.cluster.name, gpus=run.cluster.gpus, global_sequences=run.job.global_batch,
        tokens=ask.tokens, tier=SAMPLED if ask.needs_draws else CLOSED_FORM, policy=ask.policy, step_s=run.step_s,
        step_measured=ask.measured_step, step_range=ask.step_range, ideal_s=run.work_s, seconds=seconds,
        seconds_p10=low, seconds_p50=middle, seconds_p90=high, sampled_mean_s=float(drawn.seconds.mean()),
        sampled_runs=ask.sampling.runs,
        sampled_run=_first_run(drawn), goodput=run.work_s / seconds, failures=goodput.failures_per_s * seconds,
        lost_gpu_hours=(seconds - run.work_s) / 3600 * run.cluster.gpus,
        planned_restarts=run.rates.planned * seconds, between_failures_s=run.between_s, failure_rates=run.rates.name,
        failure_source=run.rates.source, failures_per_thousand_node_days=run.rates.per_thousand_node_days,
        checkpoint_bytes=run.saves.bytes, save=run.saves.kind, save_stall_s=run.saves.stall_s,
        save_lands_s=run.saves.lands_s, interval_s=goodput.interval_s, interval_curve=_curve(run, goodput.interval_s),
        intervals=[] if run.kind == "memory" else laws,
        **{f"interval_{law.law.lower()}_s": law.best_s for law in laws} if fails else dict.fromkeys(NO_LAWS),
        detect_s=run.restart.detect_s, schedule_s=run.restart.schedule_s, start_s=run.restart.start_s,
        load_s=run.restart.load_s, shares=_shares(goodput, float(drawn.waiting_s.mean()) / seconds),
        ways=[OperateWay(way=way.name, needs=way.needs, goodput=way.share, seconds=run.work_s / way.share)
              for way in ways(run, ask.left)] if fails else [],
        worth=_worth(ask) if fails else [], published_rates=_published(run) if fails else [],
        spares_needed=run.spares_needed(),
        slow_node=SlowNodeFacts(chance=slow.chance, factor=slow.factor, replace_after_s=slow.replace_after_s),
        energy_j=money.energy_j, electricity_usd=money.electricity_usd, usd=money.usd,
        failures_usd=ask.money(seconds - run.work_s).usd if seconds > run.work_s else None,
        notes=[*_notes(ask), *notes],
    )  # fmt: skip


def _first_run(drawn: SampledRuns) -> SampledRun:
    stops = drawn.stops_s[:MOST_STOPS]
    return SampledRun(seconds=float(drawn.seconds[0]), failed_s=stops[:, 0].tolist(), back_s=stops[:, 1].tolist())


def _shares(goodput: Goodput, waiting: float) -> dict[str, float]:
    rest = (1.0 - waiting) / sum(goodput.parts.values())
    return {part: goodput.parts[part] * rest for part in PARTS} | {"waiting": waiting}


def _curve(run: Operation, chosen_s: float) -> list[IntervalShare]:
    """None is shorter than a save takes to land."""
    if run.kind == "memory" or not run.rates.per_gpu:
        return []
    around = [chosen_s * 2 ** (step / 2) for step in range(-10, 11)]
    return [IntervalShare(interval_s=interval, goodput=replace(run, interval_s=interval).goodput().share)
            for interval in around if interval >= run.saves.lands_s]  # fmt: skip


def _laws(run: Operation) -> list[IntervalLaw]:
    if not run.rates.per_gpu:
        return []
    rows = []
    for name, law in (("Young", young_s), ("Daly", daly_s), ("exact", best_s)):
        best = law(run.saves.stall_s, run.between_s)
        landed = max(best, run.saves.lands_s)
        share = replace(run, interval_s=landed).goodput().share
        rows.append(IntervalLaw(law=name, best_s=best, landed_s=landed, goodput=share))
    return rows


def _worth(ask: OperateQuestion) -> list[OperateChange]:
    return [
        OperateChange(what=each.what, seconds=each.seconds,
                      usd=ask.money(each.seconds).usd if each.seconds > 0 else None)
        for each in worth(ask.run, ask.sampling)
    ]  # fmt: skip


def _published(run: Operation) -> list[FailureRateRow]:
    others = [replace(run, rates=rates, interval_s=None) for rates in published()]
    return [
        FailureRateRow(rate=other.rates.name, per_thousand_node_days=other.rates.per_thousand_node_days,
                       between_failures_s=other.between_s, goodput=other.goodput().share, seconds=other.seconds)
        for other in others
    ]  # fmt: skip


def _notes(ask: OperateQuestion) -> Iterator[str]:
    run = ask.run
    how = "the mean of runs drawn, since spares run out or failures cluster" if ask.needs_draws else "closed form"
    yield f"days: {how}; spread of {ask.sampling.runs:,} runs drawn with seed {ask.sampling.seed}"
    if ask.step_range is not None:
        low, high = ask.step_range
        yield (f"most of the spread is the step's: 80% of measured steps within {low:+.0%} .. {high:+.0%} of the "
               "predicted one; --step takes a measured one")  # fmt: skip
    if ask.policy is not None:
        yield legend_of([ask.policy])
    if run.rates.per_gpu:
        slow, rates = slow_node(run), [each.per_thousand_node_days for each in published()]
        yield (f"failures as {run.rates.name}: {run.rates.source}; published rates differ by a factor of "
               f"{max(rates) / min(rates):.2g}, and small jobs fail more often than these, of software and users: "
               "--failures takes your own count")  # fmt: skip
        if run.rates.note:
            yield f"failures as {run.rates.name}: {run.rates.note}"
        yield (f"spares: {run.spares_needed():,} nodes so that one is at hand in 99 of 100 moments, with "
               f"{run.repair_s / 3600:,.4g} h until a failed node is back")  # fmt: skip
        yield (f"a slow node: {share_text(slow.chance)} probability of one {slow.factor - 1:.0%} slower, which costs "
               f"{slow.lost_per_day_s / 3600:.2g} h of the job a day; take it out after "
               f"{time_text(slow.replace_after_s)}: by then waiting cost as much as a restart")  # fmt: skip
    state = saved_state(run.model, run.job)
    yield f"a checkpoint holds {state.each:.4g} bytes of each trained parameter: {state.counted}"
    yield price_line(run.cluster)
