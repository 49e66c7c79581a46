"""`compare`: policies, clusters and precisions side by side, against the first that can run."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace as with_fields

from shardwise.answers._assumed import assumptions_of
from shardwise.answers._lengths import lengths_data, lengths_table, over_data
from shardwise.answers._that_fit import NearPolicy, near_notes, near_policies, room_of
from shardwise.answers.answer import Answer, Cell, Notes, Part, Table
from shardwise.plan.that_fit import PolicyThatFits, policies_that_fit
from shardwise.plugins.optimizers import USUAL, update_rule
from shardwise.question import Question
from shardwise.question.legal import legal_of
from shardwise.question.policy import check_inside
from shardwise.question.words import policy_from
from shardwise.report import Report
from shardwise.report.report import Money
from shardwise.report.sync_report import SyncReport
from shardwise.report.terminal import legend_of, policy_code, usd_text
from shardwise.spec.cluster import Cluster
from shardwise.spec.policy import Policy
from shardwise.step.estimate.lengths import LengthsReport
from shardwise.units import SizeUnit, share_text, size_unit, time_text

TO_THE_SAME_LOSS = "tokens to AdamW's loss, as others published"
MOST_BESIDE = 4
"""cases whose parts of a step are shown side by side"""
SHOWN_SHARE = 0.001


@dataclass(frozen=True)
class ComparedReport:
    asked: str
    cluster: Cluster
    precision: str
    policy: Policy | None
    report: Report | None
    verdict: str
    optimizer: str
    nearest: tuple[PolicyThatFits, ...] = ()
    """policies that fit, where this one does not"""
    data: LengthsReport | None = None
    """over the lengths of the data"""

    @property
    def runs(self) -> bool:
        return self.report is not None and self.report.fits and self.verdict == self.report.verdict


class PublishedSaving(Struct, frozen=True, kw_only=True):
    """Tokens that an optimizer needs to the same loss, beside AdamW."""

    fewer_tokens: float
    """a share of AdamW's"""
    where: str
    source: str


class ComparedCase(Struct, frozen=True, kw_only=True):
    asked: str
    cluster: str
    gpus: int
    precision: str
    optimizer: str
    policy: Policy | None
    legal: bool
    fits: bool
    verdict: str
    that_fit: Sequence[NearPolicy]
    step_s: float | UnsetType = UNSET
    """of what is legal, and so the following"""
    mfu_causal_half: float | UnsetType = UNSET
    mfu_full_square: float | UnsetType = UNSET
    tokens_per_s_per_gpu: float | UnsetType = UNSET
    peak_bytes: float | UnsetType = UNSET
    billion_tokens: Money | UnsetType = UNSET
    time_s: Mapping[str, float] | UnsetType = UNSET
    traffic_bytes: Mapping[str, Mapping[str, float]] | UnsetType = UNSET
    sync: SyncReport | UnsetType | None = UNSET
    published_savings: Sequence[PublishedSaving] = ()
    lengths: Mapping[str, Any] | UnsetType = UNSET
    against_first: Mapping[str, float] | None


class CompareAnswer(Answer, frozen=True, kw_only=True):
    only_shown: ClassVar[tuple[str, ...]] = ("question", "priced")

    model: str
    stack: str
    seq_tokens: int
    global_sequences: int
    cases: Sequence[ComparedCase]
    question: Any = UNSET
    """a Question"""
    priced: Any = UNSET
    """of each case"""

    @property
    def exit_code(self) -> int:
        return 0 if any(case.fits for case in self.cases) else 1

    def parts(self) -> Iterator[Part]:
        question: Question = self.question
        rows: list[ComparedReport] = self.priced
        first = _first(rows)
        unit = size_unit(max((row.report.peak_bytes for row in rows if row.report is not None), default=2.0**30))
        yield Table(
            f"{self.model}, {self.global_sequences:,} x {self.seq_tokens:,} tokens per step",
            ["case", "step s", "diff", "MFU %", unit.name, "USD/Gtok", "diff", "node GB", "net GB"],
            [_cells(i, row, first, unit) for i, row in enumerate(rows, 1)], bars=("step s",),
        )  # fmt: skip
        mixed = len({row.optimizer for row in rows}) > 1
        names = [
            f"{i}: {row.cluster.name} {row.precision} {mixed * (row.optimizer + ' ')}{row.asked}" + _spelled(row)
            for i, row in enumerate(rows, 1)
        ]
        yield Notes(names, "cases")
        if mixed:
            others = {row.optimizer: row for row in reversed(rows) if row.optimizer != USUAL}
            yield Notes([_saved(row, first) for row in reversed(others.values())], TO_THE_SAME_LOSS)
        if question.lengths is not None:
            data = {str(i): (r.data, r.cluster.gpus) for i, r in enumerate(rows, 1) if r.data}
            yield lengths_table(data, question.lengths)
        if 1 < len(rows) <= MOST_BESIDE:
            yield _time_parts(rows)
        for index, (row, case) in enumerate(zip(rows, self.cases, strict=True), 1):
            if row.policy is not None and row.report is not None and not row.report.fits:
                room = room_of(question.on(row.cluster))
                yield near_notes(room, row.policy, case.that_fit, f"nearest to case {index}")

    def footnotes(self, notes: Sequence[str]) -> Sequence[str]:
        shown = [case.policy for case in self.cases if case.policy is not None]
        strategies = any(case.sync for case in self.cases)
        return [
            *([legend_of(shown)] if shown else []), *notes,
            "diff: against the first case that can run; GB: sent by an average GPU in a step, in its node and beyond; "
            "! does not fit",
            *(["steps, MFU and dollars are of the step alone: a strategy's further steps are listed with its case"]
              if strategies else []),
        ]  # fmt: skip


ANSWERS = (CompareAnswer,)


def compare_answer(question: Question, rows: list[ComparedReport], notes: Sequence[str]) -> CompareAnswer:
    first = _first(rows)
    return CompareAnswer(
        model=question.model.name, stack=question.stack.name, seq_tokens=question.job.seq,
        global_sequences=question.job.global_batch, cases=[_compared(question, row, first) for row in rows],
        notes=[*notes, *_assumed(question, rows)], question=question, priced=rows,
    )  # fmt: skip


def _assumed(question: Question, rows: list[ComparedReport]) -> list[str]:
    """Of the first case that runs on each cluster."""
    first = {row.cluster.name: row for row in reversed(rows) if row.runs and row.policy is not None}
    return list(dict.fromkeys(
        str(each)
        for row in reversed(list(first.values()))
        if row.policy is not None
        for each in assumptions_of(question, question.on(row.cluster), row.policy)
    ))  # fmt: skip


def _compared(question: Question, row: ComparedReport, first: Report | None) -> ComparedCase:
    report = row.report
    case = ComparedCase(
        asked=row.asked, cluster=row.cluster.name, gpus=row.cluster.gpus, precision=row.precision,
        optimizer=row.optimizer, policy=row.policy, published_savings=_savings(row.optimizer),
        legal=report is not None, fits=row.runs, verdict=row.verdict,
        that_fit=[] if report is None else near_policies(row.nearest, report.step_s),
        lengths=lengths_data(row.data, question.lengths.packing) if row.data and question.lengths else UNSET,
        against_first=None if report is None or first is None else _against(report, first),
    )  # fmt: skip
    if report is None:
        return case
    return with_fields(
        case, step_s=report.step_s, mfu_causal_half=report.mfu_causal_half, mfu_full_square=report.mfu_full_square,
        tokens_per_s_per_gpu=report.tokens_per_s_per_gpu, peak_bytes=report.peak_bytes,
        billion_tokens=report.money["billion_tokens"], time_s=report.time_s, traffic_bytes=report.traffic_bytes,
        sync=report.sync,
    )  # fmt: skip


def priced_case(case: Question, cluster: Cluster, text: str) -> ComparedReport:
    policy, precision = policy_from(text, case, cluster), case.job.precision.name
    optimizer = case.job.optimizer.name
    if policy is None:
        return ComparedReport(_asked(text, case), cluster, precision, None, None, "no such policy fits", optimizer)
    check_inside(policy, text, case.only, case.limits)
    policy = with_fields(policy, sync=case.sync.text if case.sync else "")
    verdict = legal_of(case.on(cluster), policy, cure=False)
    if not verdict.legal:
        return ComparedReport(
            _asked(text, case),
            cluster,
            precision,
            policy,
            None,
            f"cannot run, {verdict.rule}: {verdict.why}",
            optimizer,
        )
    report = case.report(cluster, policy)
    nearest = () if report.fits else tuple(policies_that_fit(case.on(cluster), policy))
    return ComparedReport(
        _asked(text, case), cluster, precision, policy, report, case.verdict(cluster, report), optimizer, nearest,
        over_data(case.on(cluster), policy, case.lengths),
    )  # fmt: skip


def _savings(optimizer: str) -> list[PublishedSaving]:
    return [
        PublishedSaving(fewer_tokens=each.share, where=each.where, source=each.source)
        for each in update_rule(optimizer).saves
    ]


def _saved(row: ComparedReport, first: Report | None) -> str:
    """What others found, and the least that pays for a longer step than the first case's."""
    found = update_rule(row.optimizer).saves
    if not found:
        return f"{row.optimizer}: no comparison is known here"
    shares = sorted(each.share for each in found)
    text = f"{row.optimizer}: {shares[0]:.0%} to {shares[-1]:.0%} fewer"
    if row.report is not None and first is not None and row.report.step_s > first.step_s:
        least = 1.0 - first.step_s / row.report.step_s
        paid = sum(share > least for share in shares)
        text += f"; more than {least:.1%} pay for its step, as in {paid} of {len(shares)} comparisons"
    return f"{text}: " + "; ".join(f"{each.share:.0%} {each.where} ({each.source})" for each in found)


def _asked(text: str, case: Question) -> str:
    return f"{text} {case.sync.text}" if case.sync else text


def _sent(report: Report) -> tuple[float, float]:
    """Bytes an average GPU sends in a step: inside its fast domain, and beyond it."""
    levels = [dict.fromkeys(sent, 0.0) for sent in report.traffic_bytes.values()]
    totals = levels[0] if levels else {}
    for sent in report.traffic_bytes.values():
        for level, amount in sent.items():
            totals[level] += amount
    amounts = list(totals.values())
    return (amounts[0] if amounts else 0.0), sum(amounts[1:])


def _first(rows: list[ComparedReport]) -> Report | None:
    return next((row.report for row in rows if row.report is not None), None)


def _against(row: Report, first: Report) -> dict[str, float]:
    """Differences to the first case, as shares of it; throughput per GPU, since clusters may differ in size."""
    usd = [r.money["billion_tokens"].usd for r in (row, first)]
    pairs = {
        "step_s": (row.step_s, first.step_s),
        "tokens_per_s_per_gpu": (row.tokens_per_s_per_gpu, first.tokens_per_s_per_gpu),
        "mfu_causal_half": (row.mfu_causal_half, first.mfu_causal_half),
        "peak_bytes": (row.peak_bytes, first.peak_bytes),
        **({"usd_per_billion_tokens": (usd[0][1], usd[1][1])} if usd[0] and usd[1] else {}),
    }
    return {name: value / base - 1 for name, (value, base) in pairs.items()}


def _spelled(row: ComparedReport) -> str:
    code = "" if row.policy is None else f" = {policy_code(row.policy)}"
    sync = row.report.sync if row.report is not None else None
    steps = (
        ""
        if sync is None
        else f"; {sync.extra_text} steps"
        + (f", {time_text(sync.to_loss_s)} a step to the same loss" if sync.to_loss_s is not None else "")
        + (
            f", {time_text(sync.dense_step_s)} with the mean gradient, which waits for its slow workers"
            if sync.slowest_worker > 1
            else ""
        )
    )
    return code + steps + ("" if row.runs else f"; {row.verdict}")


def _cells(index: int, row: ComparedReport, first: Report | None, unit: SizeUnit) -> list[Cell]:
    if row.report is None or first is None:
        return [str(index), *[None] * 8]
    report, diff = row.report, _against(row.report, first)
    inside, beyond = _sent(report)

    def percent(key: str) -> str | None:
        return None if report is first or key not in diff else f"{100 * diff[key]:+.1f}%"

    return [str(index), f"{report.step_s:.4g}", percent("step_s"), share_text(report.mfu_causal_half).rstrip("%"),
            unit.text(report.peak_bytes) + ("" if row.runs else "!"), usd_text(report.money["billion_tokens"]),
            percent("usd_per_billion_tokens"), inside / 1e9, beyond / 1e9]  # fmt: skip


def _time_parts(rows: list[ComparedReport]) -> Table:
    """The parts of a step in milliseconds, a column for each case."""
    reports = [row.report for row in rows]
    parts = dict.fromkeys(part for r in reports if r for part in r.time_s)
    listed = [p for p in parts if any(r and r.time_s.get(p, 0.0) > SHOWN_SHARE * r.step_s for r in reports)]
    cells = [[p, *(f"{1e3 * r.time_s.get(p, 0.0):,.1f}" if r else None for r in reports)] for p in listed]
    return Table("parts of a step, ms", ["part", *map(str, range(1, len(rows) + 1))], cells)
