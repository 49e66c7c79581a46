"""What `plan --sync` adds: the best policy of each strategy, and its time to the same loss."""

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from shardwise.answers._planned import Planned
from shardwise.answers.answer import Cell, Table
from shardwise.plan.synced import Best
from shardwise.report.report import Report
from shardwise.report.sync_report import SyncReport
from shardwise.report.terminal import policy_code
from shardwise.spec.policy import Policy
from shardwise.units import time_text

HEADS = ("strategy with its best policy", "step s", "extra", "to loss s", "over psgd")
DENSE = "psgd"
"""the mean gradient"""


class StrategyRow(Struct, frozen=True, kw_only=True):
    sync: str
    why_not: str | None
    """where it has no policy"""
    policy: Policy | None
    step_s: float | None
    peak_bytes: float | None
    extra: str
    """more steps to the same loss than with the mean gradient, in words"""
    extra_steps: float | None
    extra_at_least: bool = False
    extra_source: str | None = None
    to_loss_s: float | None
    report: SyncReport | None


def strategy_rows(planned: Planned) -> list[StrategyRow]:
    return [_row(best, planned) for best in planned.strategies]


def _report(best: Best, planned: Planned) -> Report | None:
    found = best.candidate
    return None if found is None else planned.question.report(planned.cluster, found.policy)


def _row(best: Best, planned: Planned) -> StrategyRow:
    found, report = best.candidate, _report(best, planned)
    extra = None if found is None else found.extra
    known = found is not None and (extra is None or extra.share is not None)
    return StrategyRow(
        sync=best.text, why_not=best.why or None, policy=found.policy if found else None,
        step_s=found.step_s if found else None, peak_bytes=found.peak_bytes if found else None,
        extra=extra.text if extra else "-",
        extra_steps=None if found is None else 0.0 if extra is None else extra.share,
        extra_at_least=extra is not None and extra.at_least, extra_source=None if extra is None else extra.source,
        to_loss_s=found.to_loss_s if found and known else None, report=None if report is None else report.sync,
    )  # fmt: skip


def strategies_table(rows: Sequence[StrategyRow]) -> Table:
    dense = next((row.to_loss_s for row in rows if row.sync == DENSE), None)
    return Table("strategies by the time to the same loss", HEADS, [_cells(row, dense) for row in rows if row.policy],
                 breaks=0)  # fmt: skip


def _cells(row: StrategyRow, dense: float | None) -> list[Cell]:
    assert row.policy is not None
    code = policy_code(replace(row.policy, sync=""))
    known = row.to_loss_s is not None
    against = "" if dense is None or row.sync == DENSE or not row.to_loss_s else f"{row.to_loss_s / dense - 1:+.1%}"
    return [f"{row.sync.replace(',', ', ')}: {code}", f"{row.step_s:.4g}", row.extra,
            f"{row.to_loss_s:.4g}" if known else "?", against if known else None]  # fmt: skip


def strategy_notes(planned: Planned, rows: Sequence[StrategyRow]) -> list[str]:
    """Where the extra steps are from, and why strategies lose that send less."""
    known = {b.text: b.candidate.extra for b in planned.strategies if b.candidate and b.candidate.extra}
    notes = [
        "ranked by the step times (1 + extra): extra is how many more steps than the mean gradient's a strategy needs "
        "to the same loss",
    ]
    notes += [f"extra steps: {extra.measured}" for extra in known.values() if extra.share is not None][:1]
    notes += [f"extra steps of {text.replace(',', ', ')}: {extra.how}" for text, extra in known.items() if extra.how]
    reasons: dict[str, list[str]] = {}
    for row in rows:
        sync, name = (row.report if row.sync != DENSE else None), row.sync.replace(",", ", ")
        if sync is not None and sync.slowest_worker > 1:
            notes.append(
                f"psgd above has no slow workers; waiting for those of {name} it takes "
                f"{time_text(sync.dense_step_s)} a step with this policy"
            )
        for loss in () if sync is None else sync.loses:
            reasons.setdefault(loss.kind, []).append(f"{name} ({loss.why})")
        if row.why_not:
            reasons.setdefault(f"left out, {row.why_not}", []).append(name)
        if sync is not None and sync.by_node is not None and not sync.by_node.refused and row.step_s is not None:
            nodes = sync.by_node
            if nodes.step_s < row.step_s:
                notes.append(f"{name}: {nodes.node} workers share a node; one a node takes {time_text(nodes.step_s)} a "
                             f"step: --sync {nodes.strategy}")  # fmt: skip
    return notes + [f"{line}: {'; '.join(names)}" for line, names in reasons.items()]
