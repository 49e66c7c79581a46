"""`shardwise compare`: policies, clusters and precisions side by side."""

from dataclasses import dataclass, replace
from typing import Annotated, Any

import msgspec
from cyclopts import Parameter
from msgspec.structs import replace as with_fields

from shardwise.answers._lengths import lengths_data, lengths_table, over_data
from shardwise.plan.that_fit import PolicyThatFits, policies_that_fit
from shardwise.question import Question
from shardwise.question.legal import legal_of
from shardwise.question.policy import check_inside
from shardwise.question.words import check_policy, policy_from
from shardwise.report import Report
from shardwise.report.terminal import legend_of, policy_code, usd_text
from shardwise.show.cli._flags import DOES_NOT_FIT, SharedFlags, asked_openly, on_of
from shardwise.show.cli._options import Json, ModelName
from shardwise.show.cli._output import Cell, print_gap, print_json, print_notes, print_parts, print_table
from shardwise.show.cli._progress import answers, left_out
from shardwise.show.cli._that_fit import print_that_fit, that_fit_data
from shardwise.spec.arch import model_of
from shardwise.spec.cluster import Cluster
from shardwise.spec.job import usual_precision
from shardwise.spec.load import cluster_of
from shardwise.spec.policy import Policy
from shardwise.step.estimate.lengths import LengthsReport
from shardwise.step.estimate.synced import choice_of
from shardwise.units import SizeUnit, share_text, size_unit, time_text

MOST_ROWS = 64
MOST_BESIDE = 4
"""cases whose parts of a step are shown side by side"""
SHOWN_SHARE = 0.001


@dataclass(frozen=True)
class CompareRow:
    asked: str
    cluster: Cluster
    precision: str
    policy: Policy | None
    report: Report | None
    verdict: str
    nearest: tuple[PolicyThatFits, ...] = ()
    """policies that fit, where this one does not"""
    data: LengthsReport | None = None
    """over the lengths of the data"""

    @property
    def runs(self) -> bool:
        return self.report is not None and self.report.fits and self.verdict == self.report.verdict


def compare(
    model: ModelName,
    /,
    *,
    on: Annotated[list[str], Parameter(negative=(), help="A cluster; may repeat.")],
    policy: Annotated[
        list[str] | None,
        Parameter(negative=(), help="'tp=8,pp=4', ddp, fsdp, hsdp, 3d, best, 'best,zero=3'; may repeat; default best."),
    ] = None,
    precision: Annotated[list[str] | None, Parameter(negative=(), help="bf16, fp8, ...; may repeat.")] = None,
    sync: Annotated[
        list[str] | None, Parameter(negative=(), help="A strategy of data parallelism (`sync list`); may repeat.")
    ] = None,
    flags: SharedFlags = SharedFlags(),  # noqa: B008  frozen
    json: Json = False,
) -> int:
    """Several policies, clusters and precisions: step, MFU, memory, cost, traffic, against the first."""
    choices, precisions = policy or ["best"], precision or [usual_precision(model_of(model))]
    for text in choices:
        check_policy(text)
    names = [on_of(flags, text) for text in on]
    clusters = [cluster_of(name) for name in names]
    largest = max(clusters, key=lambda cluster: cluster.gpus)
    case = asked_openly(model, on[clusters.index(largest)], flags)
    notes = list(case.notes)
    strategies = [choice_of(text.strip(), case.job.optimizer.name) for text in sync or [""]]
    wanted = [
        (c, p, t, s)
        for c in clusters
        for p in map(case.stack.precision, precisions)
        for t in choices
        for s in strategies
    ]
    if len(wanted) > MOST_ROWS:
        raise ValueError(f"compare: {len(wanted)} cases are too many for a table; write at most {MOST_ROWS}")
    rows = answers(
        wanted,
        "cases",
        lambda w: _row(replace(case, job=with_fields(case.job, precision=w[1]), sync=w[3]), w[0], w[2]),
    )
    notes += left_out(rows, wanted, "cases")
    if json:
        print_json(_data(case, rows) | {"notes": notes})
    else:
        _show(case, rows, notes)
    return 0 if any(row.runs for row in rows) else DOES_NOT_FIT


def _row(case: Question, cluster: Cluster, text: str) -> CompareRow:
    policy, precision = policy_from(text, case, cluster), case.job.precision.name
    if policy is None:
        return CompareRow(_asked(text, case), cluster, precision, None, None, "no such policy fits")
    check_inside(policy, text, case.only, case.limits)
    policy = with_fields(policy, sync=case.sync.text if case.sync else "")
    verdict = legal_of(case.on(cluster), policy, cure=False)
    if not verdict.legal:
        return CompareRow(
            _asked(text, case), cluster, precision, policy, None, f"cannot run, {verdict.rule}: {verdict.why}"
        )
    report = case.report(cluster, policy)
    nearest = () if report.fits else tuple(policies_that_fit(case.on(cluster), policy))
    return CompareRow(
        _asked(text, case), cluster, precision, policy, report, case.verdict(cluster, report), nearest,
        over_data(case.on(cluster), policy, case.lengths),
    )  # fmt: skip


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


def _first(rows: list[CompareRow]) -> Report | None:
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


def _show(case: Question, rows: list[CompareRow], notes: list[str]) -> None:
    first = _first(rows)
    unit = size_unit(max((row.report.peak_bytes for row in rows if row.report is not None), default=2.0**30))
    names = [f"{i}: {row.cluster.name} {row.precision} {row.asked}" + _spelled(row) for i, row in enumerate(rows, 1)]
    print_table(
        f"{case.model.name}, {case.job.global_batch:,} x {case.job.seq:,} tokens per step",
        ["case", "step s", "diff", "MFU %", unit.name, "USD/Gtok", "diff", "node GB", "net GB"],
        [_cells(i, row, first, unit) for i, row in enumerate(rows, 1)], bars=("step s",),
    )  # fmt: skip
    print_notes(names, title="cases")
    if case.lengths is not None:
        print_gap()
        data = {str(i): (r.data, r.cluster.gpus) for i, r in enumerate(rows, 1) if r.data}
        print_parts([lengths_table(data, case.lengths)])
    if 1 < len(rows) <= MOST_BESIDE:
        _show_parts(rows)
    for index, row in enumerate(rows, 1):
        if row.policy is not None and row.report is not None and not row.report.fits:
            near = f"nearest to case {index}"
            print_that_fit(case.on(row.cluster), row.policy, row.nearest, row.report.step_s, near=near)
    shown = [row.policy for row in rows if row.policy is not None]
    print_notes([
        *([legend_of(shown)] if shown else []),
        *notes,
        "diff: against the first case that can run; GB: sent by an average GPU in a step, in its node and beyond; "
        "! does not fit",
        *(["steps, MFU and dollars are of the step alone: a strategy's further steps are listed with its case"]
          if any(row.report is not None and row.report.sync for row in rows) else []),
    ])  # fmt: skip


def _spelled(row: CompareRow) -> str:
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


def _cells(index: int, row: CompareRow, first: Report | None, unit: SizeUnit) -> list[Cell]:
    if row.report is None or first is None:
        return [str(index), *[None] * 8]
    report, diff = row.report, _against(row.report, first)
    inside, beyond = _sent(report)

    def percent(key: str) -> str | None:
        return None if report is first or key not in diff else f"{100 * diff[key]:+.1f}%"

    return [str(index), f"{report.step_s:.4g}", percent("step_s"), share_text(report.mfu_causal_half).rstrip("%"),
            unit.text(report.peak_bytes) + ("" if row.runs else "!"), usd_text(report.money["billion_tokens"]),
            percent("usd_per_billion_tokens"), inside / 1e9, beyond / 1e9]  # fmt: skip


def _show_parts(rows: list[CompareRow]) -> None:
    """The parts of a step in milliseconds, a column for each case."""
    reports = [row.report for row in rows]
    parts = dict.fromkeys(part for r in reports if r for part in r.time_s)
    shown = [p for p in parts if any(r and r.time_s.get(p, 0.0) > SHOWN_SHARE * r.step_s for r in reports)]
    print_gap()
    print_table(
        "parts of a step, ms", ["part", *map(str, range(1, len(rows) + 1))],
        [[p, *(f"{1e3 * r.time_s.get(p, 0.0):,.1f}" if r else None for r in reports)] for p in shown],
    )  # fmt: skip


def _data(case: Question, rows: list[CompareRow]) -> dict[str, Any]:
    first = _first(rows)
    return {
        "model": case.model.name, "stack": case.stack.name, "seq_tokens": case.job.seq,
        "global_sequences": case.job.global_batch,
        "cases": [
            {
                "asked": row.asked, "cluster": row.cluster.name, "gpus": row.cluster.gpus, "precision": row.precision,
                "policy": None if row.policy is None else msgspec.to_builtins(row.policy),
                "legal": row.report is not None, "fits": row.runs,
                "verdict": row.verdict,
                "that_fit": [] if row.report is None else that_fit_data(row.nearest, row.report.step_s),
                **(_numbers(row.report) if row.report is not None else {}),
                **({"lengths": lengths_data(row.data, case.lengths.packing)} if row.data and case.lengths else {}),
                "against_first": None if row.report is None or first is None else _against(row.report, first),
            }
            for row in rows
        ],
    }  # fmt: skip


def _numbers(report: Report) -> dict[str, Any]:
    return {
        "step_s": report.step_s, "mfu_causal_half": report.mfu_causal_half, "mfu_full_square": report.mfu_full_square,
        "tokens_per_s_per_gpu": report.tokens_per_s_per_gpu, "peak_bytes": report.peak_bytes,
        "billion_tokens": msgspec.to_builtins(report.money["billion_tokens"]), "time_s": report.time_s,
        "traffic_bytes": report.traffic_bytes, "sync": msgspec.to_builtins(report.sync),
    }  # fmt: skip
