"""`size`: how many GPUs and how long for a number of tokens, by each size's best policy or at a stated utilization;
with --chinchilla, the model and tokens a budget should train."""

import shlex
from collections.abc import Iterator, Sequence
from math import ceil
from typing import Annotated, Any, ClassVar

from msgspec import UNSET, Struct
from msgspec.structs import asdict
from msgspec.structs import replace as with_fields

from shardwise.answers._assumed import assumptions_of
from shardwise.answers._budget import Budget
from shardwise.answers._sizes import SizePoint, SizeQuestion
from shardwise.answers._that_fit import near_notes, near_policies, room_of
from shardwise.answers.answer import Answer, Cell, Notes, Part, Table, shown, table
from shardwise.answers.mfu import forward_repeated
from shardwise.plan.that_fit import policies_that_fit
from shardwise.question.command import job_words
from shardwise.question.job import DEFAULT_STACK
from shardwise.question.studies.money import failures_line, price_line, run_money
from shardwise.registry import closest
from shardwise.report.report import Money
from shardwise.report.terminal import days_text, dollars_text, legend_of, mwh_text, policy_code, usd_text
from shardwise.spec.cluster import Cluster
from shardwise.spec.policy import Policy
from shardwise.step.estimate.chinchilla import Optimum, optima
from shardwise.step.estimate.mfu import HEADLINE, conventions, training_flops, training_seconds
from shardwise.step.estimate.state import state_of
from shardwise.units import gib, share_text, time_text


class SizeRow(Struct, frozen=True, kw_only=True):
    gpus: int
    cluster: str
    fits: bool
    policy: Policy | None
    step_s: float | None
    mfu_causal_half: float | None
    mfu_full_square: float | None
    tokens_per_s_per_gpu: float | None
    peak_bytes: float | None
    global_sequences: int | None
    seconds: float | None
    energy_j: float | None
    electricity_usd: float | None
    usd: tuple[float, float] | None
    """rent, low and high"""
    meets: bool
    misses: Sequence[str]


class SizeAnswer(Answer, frozen=True, kw_only=True):
    only_shown: ClassVar[tuple[str, ...]] = ("limit", "points", "near")

    model: str
    on: str
    stack: str
    tokens: float
    seq_tokens: int
    global_sequences: int
    within_s: float | None
    budget_usd: float | None
    sizes: Sequence[SizeRow]
    sizes_tried_between: int
    smallest_in_time: int | None
    """GPUs, as the next two"""
    cheapest_in_budget: int | None
    smallest_that_meets_all: int | None
    next: str | None
    """the command of the whole run on the size to take"""
    limit: Any = UNSET
    """a Budget"""
    points: Any = UNSET
    """of each size, a SizePoint"""
    near: Any = UNSET
    """Notes on policies that fit, where none does"""

    @property
    def exit_code(self) -> int:
        return 0 if any(row.meets for row in self.sizes) else 1

    def parts(self) -> Iterator[Part]:
        points: list[SizePoint] = self.points
        yield Table(
            f"{self.model}, {self.tokens:,.4g} tokens on {points[0].cluster.gpu.name}",
            ["GPUs", "best policy", "step s", "MFU %", "days", "MWh", "power USD", "rent USD"],
            list(map(_cells, _without_repeats(points))), words=2, breaks=1, bars=("days",),
        )  # fmt: skip
        yield Notes(_answers(self.limit, points), "answer")
        yield Notes([self.next] if self.next else [], "next")
        if self.near is not None:
            yield self.near

    def footnotes(self, notes: Sequence[str]) -> Sequence[str]:
        return [legend_of([row.policy for row in self.sizes if row.policy is not None]), *notes]


class MfuSize(Struct, frozen=True, kw_only=True):
    gpus: Annotated[int, shown("GPUs", "thousands")]
    cluster: str
    seconds: Annotated[float, shown("days", days_text)]
    energy_j: Annotated[float, shown("MWh", mwh_text)]
    electricity_usd: Annotated[float, shown("power USD", dollars_text)]
    usd: Annotated[tuple[float, float] | None, shown("rent USD", "USD span")]


class MfuSizeAnswer(Answer, frozen=True, kw_only=True):
    """At a stated utilization."""

    model: str
    tokens: float
    mfu: float
    convention: str
    """which FLOPs it counts: a key of `calc mfu`"""
    tokens_per_s_per_gpu: float
    within_s: float | None
    budget_usd: float | None
    sizes: Sequence[MfuSize]
    smallest_that_meets_all: int | None
    most_gpus: int

    @property
    def exit_code(self) -> int:
        return 1 if self.smallest_that_meets_all is None else 0

    def parts(self) -> Iterator[Part]:
        yield table(
            f"{self.model}, {self.tokens:,.4g} tokens, MFU {self.mfu:.0%}", self.sizes, row=MfuSize, bars=("days",)
        )
        found = next((row for row in self.sizes if row.gpus == self.smallest_that_meets_all), None)
        if found is None:
            yield Notes([f"none up to {self.most_gpus:,} GPUs"], "answer")
            return
        limited = self.within_s is not None or self.budget_usd is not None
        what = "smallest that meets the limits" if limited else "smallest that holds the model"
        yield Notes([f"{what}: {found.cluster}, {days_text(found.seconds)} days"], "answer")


class TimedOptimum(Optimum, frozen=True, kw_only=True):
    seconds_6tp: float
    """without recompute"""
    seconds_8tp: float
    """with the forward pass repeated"""


class ChinchillaAnswer(Answer, frozen=True, kw_only=True):
    flops: float
    gpu: str
    gpus: int
    mfu: float
    peak_flops_per_s: float
    optima: Sequence[TimedOptimum]

    def parts(self) -> Iterator[Part]:
        heads = ["law", "parameters", "tokens", "loss", "6TP", "8TP"]
        yield Table(
            f"compute-optimal training for {self.flops:.3g} FLOP", heads,
            [(f.law, _big(f.parameters), _big(f.tokens), f"{f.loss:.3f}", time_text(f.seconds_6tp),
              time_text(f.seconds_8tp)) for f in self.optima],
            bars=("6TP", "8TP"),
        )  # fmt: skip


ANSWERS = (SizeAnswer, MfuSizeAnswer, ChinchillaAnswer)


def size_answer(ask: SizeQuestion, on: str, points: list[SizePoint], between: int, notes: Sequence[str]) -> SizeAnswer:
    """`between`: sizes between powers of two that were tried."""
    quick, cheap = smallest_in_time(points), cheapest_in_budget(points)
    both = next((p for p in points if p.meets), None)
    for_money = ask.limit.usd is not None and ask.limit.seconds is None
    take = both or ((cheap or _least(points)) if for_money else quick)
    case = ask.case
    return SizeAnswer(
        model=case.model.name, on=on, stack=case.stack.name, tokens=ask.tokens, seq_tokens=case.job.seq,
        global_sequences=case.job.global_batch, within_s=ask.limit.seconds, budget_usd=ask.limit.usd,
        sizes=list(map(_row, points)), sizes_tried_between=between,
        smallest_in_time=None if quick is None else quick.cluster.gpus,
        cheapest_in_budget=None if cheap is None else cheap.cluster.gpus,
        smallest_that_meets_all=None if both is None else both.cluster.gpus, limit=ask.limit, points=points,
        near=_near(ask, points), next=_next(ask, take), notes=[*notes, *_assumed(ask, take)],
    )  # fmt: skip


def _row(point: SizePoint) -> SizeRow:
    report, run = point.report, point.run
    return SizeRow(
        gpus=point.cluster.gpus, cluster=point.cluster.name, fits=report is not None,
        policy=None if report is None else report.policy, step_s=None if report is None else report.step_s,
        mfu_causal_half=None if report is None else report.mfu_causal_half,
        mfu_full_square=None if report is None else report.mfu_full_square,
        tokens_per_s_per_gpu=None if report is None else report.tokens_per_s_per_gpu,
        peak_bytes=None if report is None else report.peak_bytes,
        global_sequences=None if report is None else report.global_sequences,
        seconds=None if run is None else run.seconds, energy_j=None if run is None else run.energy_j,
        electricity_usd=None if run is None else run.electricity_usd, usd=None if run is None else run.usd,
        meets=point.meets, misses=point.misses if report is not None else ["memory"],
    )  # fmt: skip


def smallest_in_time(points: list[SizePoint]) -> SizePoint | None:
    return next((p for p in points if p.report is not None and "time" not in p.misses), None)


def cheapest_in_budget(points: list[SizePoint]) -> SizePoint | None:
    return _least([p for p in points if "dollars" not in p.misses])


def _least(points: list[SizePoint]) -> SizePoint | None:
    """By the highest of published rents."""
    priced = [p for p in points if p.run is not None and p.run.usd is not None]
    return min(priced, key=lambda p: p.run.usd[1] if p.run and p.run.usd else 0.0, default=None)


def _cells(point: SizePoint) -> list[Cell]:
    if point.report is None or point.run is None:
        return [f"{point.cluster.gpus:,}", _why_nothing(point), *[None] * 6]
    return [f"{point.cluster.gpus:,}", policy_code(point.report.policy), f"{point.report.step_s:.4g}",
            share_text(point.report.mfu_causal_half).rstrip("%"), days_text(point.run.seconds),
            mwh_text(point.run.energy_j), dollars_text(point.run.electricity_usd), usd_text(point.run)]  # fmt: skip


def _without_repeats(points: list[SizePoint]) -> list[SizePoint]:
    """Of the sizes on which nothing fits, the largest."""
    first = next((i for i, p in enumerate(points) if p.report is not None), len(points))
    return points[max(first - 1, 0) :]


def _next(ask: SizeQuestion, point: SizePoint | None) -> str | None:
    """The whole run on the size to take, with all that was assumed of it."""
    if point is None or point.report is None:
        return None
    question = ask.case
    job = with_fields(question.job, global_batch=point.report.global_sequences)
    words = ["shardwise", "operate", question.model.name, "--on", point.cluster.name, *job_words(job)]
    words += ["--stack", question.stack.name] if question.stack.name != DEFAULT_STACK else []
    return shlex.join([*words, "--tokens", f"{ask.tokens:.6g}"])


def _assumed(ask: SizeQuestion, point: SizePoint | None) -> list[str]:
    if point is None or point.report is None:
        return []
    return list(map(str, assumptions_of(ask.case, ask.case.on(point.cluster), point.report.policy)))


def _answers(limit: Budget, points: list[SizePoint]) -> list[str]:
    quick, cheap = smallest_in_time(points), cheapest_in_budget(points)
    answers = []
    if limit.seconds is not None:
        days = days_text(limit.seconds)
        answers.append(_answer(f"smallest within {days} days", quick, f"none up to {points[-1].cluster.name}"))
    if limit.usd is not None:
        answers.append(_answer(f"cheapest within {limit.usd:,.0f} USD", cheap, _dearer(points)))
    if limit.seconds is not None and limit.usd is not None:
        both = next((p for p in points if p.meets), None)
        answers.append(_answer("smallest that meets both", both, "none"))
    if not answers:
        answers = [_answer("smallest that fits", quick, "none"), _answer("cheapest", cheap, "no published rent")]
    return answers


def _dearer(points: list[SizePoint]) -> str:
    least = _least(points)
    if least is None or least.run is None:
        return "no published rent; --rent states yours"
    days = days_text(least.run.seconds)
    return f"none for certain: the cheapest is {least.cluster.name}, {usd_text(least.run)} USD in {days} days"


def _answer(what: str, point: SizePoint | None, none: str) -> str:
    if point is None or point.run is None:
        return f"{what}: {none}"
    rent = "" if point.run.usd is None else f", rent {usd_text(point.run)} USD"
    return f"{what}: {point.cluster.name}, {days_text(point.run.seconds)} days{rent}"


def _why_nothing(point: SizePoint) -> str:
    small = point.ranked.smallest
    if small is None:
        return "nothing legal: the batch does not divide"
    return f"over by {gib(small.peak_bytes - point.ranked.limit_bytes)} GiB"


def _near(ask: SizeQuestion, points: list[SizePoint]) -> Notes | None:
    largest = points[-1]
    small = largest.ranked.smallest
    if small is None or any(p.report is not None for p in points):
        return None
    case = ask.case.on(largest.cluster)
    near = near_policies(policies_that_fit(case, small.policy), small.step_s)
    return near_notes(room_of(case), small.policy, near, f"on {largest.cluster.name}: nearest")


def mfu_size_answer(ask: SizeQuestion, mfu: float, notes: Sequence[str], convention: str = HEADLINE) -> MfuSizeAnswer:
    """Of a training of all parameters. `convention`: which FLOPs the share of the peak counts."""
    case, sizes = ask.case, ask.sizes
    gpu = sizes.at(ask.counts[0]).gpu
    known = {each.key: each for each in [*conventions(case.model, case.job.seq), forward_repeated(case.model)]}
    if convention not in known:
        raise ValueError(f"convention: {convention[:40]!r} is unknown; {closest(convention, list(known))}")
    flops = known[convention].flops_per_token
    rate = mfu * gpu.peak(case.job.precision.compute) / flops
    state = state_of(case.model, case.job)
    counts = {*ask.counts}
    if ask.limit.seconds is not None:
        whole = ceil(ask.tokens / (rate * ask.limit.seconds))
        step = 1 if sizes.any_count and whole < sizes.step else sizes.step
        counts |= {n for n in [ceil(whole / step) * step] if n <= min(ask.most, sizes.most)}
    found = [_at(ask, gpus, rate) for gpus in sorted(counts) if gpus >= state.gpus_for(gpu)]
    meeting = [size for size in found if not ask.limit.misses(*size)]
    answer = meeting[0] if meeting else None
    notes = [
        *notes,
        f"{mfu:.0%} of {gpu.peak(case.job.precision.compute) / 1e12:,.4g} TFLOP/s assumed, not predicted: "
        f"{rate:,.0f} tokens/s per GPU at every size",
        f"--mfu counts {flops / 1e9:,.4g} GFLOP a token ({known[convention].what}); "
        + ("--convention 8tp counts the forward pass twice" if convention != "8tp" else f"usual: {HEADLINE}"),
        f"left out: sizes below the {state.gpus_for(gpu):,} GPUs that hold the training state, {state}; whether "
        "activations fit is not asked",
        *([failures_line(case.on(found[-1][0]), found[-1][1])] if found else []),
        price_line(sizes.at(ask.counts[0])),
    ]
    return MfuSizeAnswer(
        model=case.model.name, tokens=ask.tokens, mfu=mfu, convention=convention, tokens_per_s_per_gpu=rate,
        within_s=ask.limit.seconds,
        budget_usd=ask.limit.usd,
        sizes=[MfuSize(gpus=cluster.gpus, cluster=cluster.name, seconds=run.seconds, energy_j=run.energy_j,
                       electricity_usd=run.electricity_usd, usd=run.usd) for cluster, run in found],
        smallest_that_meets_all=None if answer is None else answer[0].gpus, most_gpus=min(ask.most, sizes.most),
        notes=notes,
    )  # fmt: skip


def _at(ask: SizeQuestion, gpus: int, rate: float) -> tuple[Cluster, Money]:
    cluster = ask.sizes.at(gpus)
    case = ask.case.on(cluster)
    rate *= gpus
    return cluster, run_money(case, case.job.step_tokens / rate, ask.tokens, rate, ask.rent)


def chinchilla_answer(
    cluster: Cluster, flops: float, mfu: float, peak: float, notes: Sequence[str]
) -> ChinchillaAnswer:
    """`peak`: FLOP/s of a GPU in the precision of the training."""

    def seconds(found: Optimum, *, recompute: bool) -> float:
        work = training_flops(found.tokens, found.parameters, recompute=recompute)
        return training_seconds(work, cluster.gpus, peak, mfu)

    return ChinchillaAnswer(
        flops=flops, gpu=cluster.gpu.name, gpus=cluster.gpus, mfu=mfu, peak_flops_per_s=peak,
        optima=[
            TimedOptimum(**asdict(each), seconds_6tp=seconds(each, recompute=False),
                         seconds_8tp=seconds(each, recompute=True))
            for each in optima(flops)
        ],
        notes=[
            *notes,
            f"times on {cluster.gpus:,} x {cluster.gpu.name} at {mfu:.0%} of {peak / 1e12:,.4g} TFLOP/s; "
            "6TP without recompute, 8TP with the forward pass repeated",
            "L(N, D) = 1.69 + 406.4 / N^0.34 + 410.7 / D^0.28 (arXiv:2203.15556); its loss is of that paper's data",
        ],
    )  # fmt: skip


def _big(value: float) -> str:
    scale, unit = next(((s, u) for s, u in ((1e12, "T"), (1e9, "B"), (1e6, "M")) if value >= s), (1.0, ""))
    return f"{value / scale:.3g}{unit}"
