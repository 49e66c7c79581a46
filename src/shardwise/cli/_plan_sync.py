"""What `plan --sync` adds: the best policy of each strategy, and what it takes to the same loss."""

from typing import Any

import msgspec

from shardwise.cli._output import Cell, print_gap, print_table
from shardwise.plan.candidate import Candidate
from shardwise.plan.synced import Best
from shardwise.question import Question
from shardwise.report import Report
from shardwise.report.terminal import policy_code
from shardwise.spec.cluster import Cluster
from shardwise.units import time_text

HEADS = ("strategy with its best policy", "step s", "extra", "to loss s", "over psgd")


def extra_text(candidate: Candidate) -> str:
    return candidate.extra.text if candidate.extra else "-"


def report_for(best: Best, case: Question, cluster: Cluster) -> Report | None:
    return None if best.candidate is None else case.report(cluster, best.candidate.policy)


def show_strategies(each: list[Best]) -> None:
    dense = next((b.candidate for b in each if b.choice is None), None)
    print_gap()
    print_table(
        "strategies by the time to the same loss", HEADS,
        [_cells(best.text, best.candidate, dense) for best in each if best.candidate], breaks=0,
    )  # fmt: skip


def _cells(text: str, found: Candidate, dense: Candidate | None) -> list[Cell]:
    policy = policy_code(msgspec.structs.replace(found.policy, sync=""))
    against = "" if dense is None or found is dense else f"{100 * (found.to_loss_s / dense.to_loss_s - 1):+.1f}%"
    known = found.extra is None or found.extra.share is not None
    return [f"{text.replace(',', ', ')}: {policy}", f"{found.step_s:.4g}", extra_text(found),
            f"{found.to_loss_s:.4g}" if known else "?", against if known else None]  # fmt: skip


def strategies_data(each: list[Best], case: Question, cluster: Cluster) -> list[dict[str, Any]]:
    rows = []
    for best in each:
        report = report_for(best, case, cluster)
        found = best.candidate
        rows.append({
            "sync": best.text, "why_not": best.why or None,
            "policy": None if found is None else msgspec.to_builtins(found.policy),
            "step_s": None if found is None else found.step_s,
            "peak_bytes": None if found is None else found.peak_bytes,
            **(candidate_data(found) if found is not None else {"extra_steps": None, "to_loss_s": None}),
            "report": None if report is None else msgspec.to_builtins(report.sync),
        })  # fmt: skip
    return rows


def candidate_data(found: Candidate) -> dict[str, Any]:
    extra = found.extra
    known = extra is None or extra.share is not None
    return {
        "extra_steps": 0.0 if extra is None else extra.share, "extra_at_least": extra is not None and extra.at_least,
        "extra_source": None if extra is None else extra.source, "to_loss_s": found.to_loss_s if known else None,
    }  # fmt: skip


def strategy_notes(each: list[Best], case: Question, cluster: Cluster) -> list[str]:
    """Where the extra steps are from, and why strategies lose that send less."""
    known = {b.text: b.candidate.extra for b in each if b.candidate and b.candidate.extra}
    notes = [
        "ranked by the step times (1 + extra): extra is how many more steps than the mean gradient's a strategy needs "
        "to the same loss",
    ]
    notes += [f"extra steps: {extra.measured}" for extra in known.values() if extra.share is not None][:1]
    notes += [f"extra steps of {text.replace(',', ', ')}: {extra.how}" for text, extra in known.items() if extra.how]
    said: dict[str, list[str]] = {}
    for best in each:
        report = report_for(best, case, cluster) if best.choice is not None else None
        sync = report.sync if report is not None else None
        loses = sync.loses if sync is not None else ()
        if sync is not None and sync.slowest_worker > 1:
            notes.append(
                f"psgd above has no slow workers; waiting for those of {best.text.replace(',', ', ')} it takes "
                f"{time_text(sync.dense_step_s)} a step with this policy"
            )
        for line in (*(loss.kind for loss in loses), *([f"left out, {best.why}"] if best.why else [])):
            said.setdefault(line, []).append(best.text.replace(",", ", "))
    return notes + [f"{line}: {'; '.join(texts)}" for line, texts in said.items()]
