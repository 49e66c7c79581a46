"""What `shardwise preflight` shows: items by subject, what to do, and what nobody could look at; files of facts."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from shardwise.report.terminal import policy_code
from shardwise.run.preflight.check import ItemVerdict, counts, fails
from shardwise.run.preflight.facts import MARK, RecordedNode, encoded, facts_of
from shardwise.run.preflight.finding import FAIL, PASS, UNKNOWN, WARN, Probe, Subject, few
from shardwise.run.preflight.node import LiveNode
from shardwise.run.preflight.planned import PlannedJob
from shardwise.show.cli._html import draw_amounts
from shardwise.show.cli._output import Cell, print_facts, print_gap, print_json, print_line, print_notes, print_table
from shardwise.whole_file import OutputFile

SHOWN_HOSTS = 8


@dataclass(frozen=True)
class PreflightAnswer:
    hosts: tuple[str, ...]
    rows: tuple[ItemVerdict, ...]
    plan: PlannedJob | None
    files: list[str]
    """of facts that were written"""

    @property
    def verdict(self) -> str:
        """The worst of those that could be looked at; not available where none could."""
        there = {row.verdict for row in self.rows}
        return next((word for word in (FAIL, WARN, PASS) if word in there), UNKNOWN)


@dataclass(frozen=True)
class FactsOut:
    """Where facts go: a file, or a folder with a file for each host."""

    path: Path
    overwrite: bool

    def __post_init__(self) -> None:
        if not self.path.is_dir():
            OutputFile(self.path, "out", MARK, self.overwrite)

    def write(self, nodes: "Sequence[LiveNode | RecordedNode]") -> list[str]:
        if not self.path.is_dir() and len(nodes) > 1:
            raise ValueError(
                f"out: {str(self.path)!r} is one file for {len(nodes)} nodes; write a folder that is there"
            )
        written = []
        for node in nodes:
            path = self.path / f"{re.sub(r'[^A-Za-z0-9._-]', '_', node.host)}.json" if self.path.is_dir() else self.path
            OutputFile(path, "out", MARK, self.overwrite).write(encoded(facts_of(node)) + b"\n")
            written.append(str(path))
        return written


def list_items(items: list[tuple[Subject, Probe]], json: bool) -> None:
    if json:
        print_json({"items": [
            {"item": item.name, "subject": subject.title, "asks": item.asks, "reads": item.reads,
             "needs": item.needs.split()} for subject, item in items
        ]})  # fmt: skip
        return
    rows: list[list[Cell]] = [[item.name, item.asks, item.reads] for _, item in items]
    print_table(f"{len(items)} items", ["item", "question", "read from"], rows, words=3)


def data_of(answer: PreflightAnswer) -> dict[str, Any]:
    plan, training = answer.plan, answer.plan.training if answer.plan is not None else None
    found: dict[str, Any] = {
        "verdict": answer.verdict, "hosts": list(answer.hosts), "counts": counts(answer.rows),
        "items": [msgspec.to_builtins(row) for row in answer.rows],
        "plan": None if plan is None else {
            "cluster": plan.cluster.name, "gpu": plan.gpu.name, "hosts": plan.hosts, "host_gpus": plan.host_gpus,
            "environment": plan.environment, "host_network_bytes_per_s": plan.host_bytes_per_s,
            "model": None if training is None else training.case.model.name,
            "policy": None if training is None else training.policy,
            "peak_bytes": None if training is None else training.report.peak_bytes,
            "step_s": None if training is None else training.report.step_s,
            "checkpoint_bytes": None if training is None else training.checkpoint_bytes,
            "groups": {} if training is None else training.groups,
        },
        "files": answer.files, "notes": [] if plan is None else plan.notes,
    }  # fmt: skip
    return found


def show_answer(answer: PreflightAnswer) -> None:
    hosts = (
        f"{len(answer.hosts)} hosts ({few(answer.hosts, SHOWN_HOSTS)})" if len(answer.hosts) > 1 else answer.hosts[0]
    )
    facts: list[tuple[str, Cell]] = [("ready", _summary(answer))]
    plan = answer.plan
    if plan is not None and plan.training is not None:
        case = plan.training.case
        facts.append(("plan", f"{case.model.name} on {plan.cluster.name}, {policy_code(plan.training.policy)}"))
    elif plan is not None:
        facts.append(("cluster", plan.cluster.name))
    print_facts(f"preflight of {hosts}", facts)
    draw_amounts("items by verdict", {name: (many, str(many)) for name, many in counts(answer.rows).items()})
    looked = [row for row in answer.rows if row.verdict != UNKNOWN]
    rows: list[list[Cell]] = []
    for subject in dict.fromkeys(row.subject for row in looked):
        rows.append([subject, "", ""])
        rows += [[f"  {row.item}", row.verdict, row.evidence] for row in looked if row.subject == subject]
    if rows:
        print_gap()
        print_table("", ["item", "verdict", "evidence"], rows, words=3, breaks=2)
    print_notes(_cures(answer.rows), title="what to do")
    print_notes(_unlooked(answer.rows), title="not available")
    print_notes([] if plan is None else plan.notes)


def show_written(answer: PreflightAnswer) -> None:
    print_line(f"{few(answer.hosts, SHOWN_HOSTS)}: {_summary(answer)}; facts in {few(answer.files, 2)}")
    print_notes(_cures(answer.rows), title="what to do")


def _summary(answer: PreflightAnswer) -> str:
    found = ", ".join(f"{many} {verdict}" for verdict, many in counts(answer.rows).items() if many)
    word = "no" if fails(answer.rows) else "nothing failed"
    return f"{word}: {found}"


def _cures(rows: Sequence[ItemVerdict]) -> list[str]:
    """Of what failed first, then of what warns: what to do, and what was read."""
    found = [row for verdict in (FAIL, WARN) for row in rows if row.verdict == verdict and row.cure]
    return [f"{row.item} ({row.verdict}): {row.cure} [{row.reads}]" for row in found]


def _unlooked(rows: Sequence[ItemVerdict]) -> list[str]:
    """Items that share a reason are one line."""
    reasons: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        if row.verdict == UNKNOWN:
            reasons.setdefault((row.evidence, row.cure), []).append(row.item)
    return [f"{', '.join(items)}: {evidence}" + (f" ({cure})" if cure else "")
            for (evidence, cure), items in reasons.items()]  # fmt: skip
