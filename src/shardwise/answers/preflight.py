"""`preflight`: items by subject with their verdicts, what to do, and what nobody could look at."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated

from msgspec import Struct

from shardwise.answers.answer import Answer, Bars, Cell, FactList, Notes, Part, Sentence, Table, shown, table
from shardwise.answers.cannot_run import CannotRunAnswer
from shardwise.report.terminal import policy_code
from shardwise.run.preflight.check import ItemVerdict, counts, fails
from shardwise.run.preflight.finding import FAIL, PASS, UNKNOWN, WARN, Probe, Subject, few
from shardwise.run.preflight.planned import PlannedJob
from shardwise.spec.policy import Policy

SHOWN_HOSTS = 8


class ItemRow(Struct, frozen=True, kw_only=True):
    item: Annotated[str, shown("item")]
    subject: str
    asks: Annotated[str, shown("question")]
    reads: Annotated[str, shown("read from")]
    needs: Sequence[str]


class ItemsAnswer(Answer, frozen=True, kw_only=True):
    """What can be looked at."""

    items: Sequence[ItemRow]

    def parts(self) -> Iterator[Part]:
        yield table(f"{len(self.items)} items", self.items, row=ItemRow, words=3)


class PlannedFacts(Struct, frozen=True, kw_only=True):
    """What is planned on these nodes; of a training where it is stated."""

    cluster: str
    gpu: str
    hosts: int
    host_gpus: int
    environment: Mapping[str, str]
    host_network_bytes_per_s: float
    model: str | None
    policy: Policy | None
    peak_bytes: float | None
    step_s: float | None
    checkpoint_bytes: float | None
    groups: Mapping[str, Sequence[Sequence[int]]]


class PreflightAnswer(Answer, frozen=True, kw_only=True):
    verdict: str
    """the worst of those that could be looked at; not available where none could"""
    hosts: Sequence[str]
    counts: Mapping[str, int]
    items: Sequence[ItemVerdict]
    plan: PlannedFacts | None
    files: Sequence[str]
    """of facts that were written"""

    @property
    def exit_code(self) -> int:
        return 1 if fails(self.items) else 0

    def parts(self) -> Iterator[Part]:
        if self.files:
            yield Sentence(f"{few(self.hosts, SHOWN_HOSTS)}: {self._summary()}; facts in {few(self.files, 2)}")
            yield Notes(_cures(self.items), "what to do")
            return
        named = f"{len(self.hosts)} hosts ({few(self.hosts, SHOWN_HOSTS)})" if len(self.hosts) > 1 else self.hosts[0]
        facts: list[tuple[str, Cell]] = [("ready", self._summary())]
        if self.plan is not None and self.plan.policy is not None:
            facts.append(("plan", f"{self.plan.model} on {self.plan.cluster}, {policy_code(self.plan.policy)}"))
        elif self.plan is not None:
            facts.append(("cluster", self.plan.cluster))
        yield FactList(f"preflight of {named}", facts)
        yield Bars("items by verdict", {name: (many, str(many)) for name, many in self.counts.items()})
        looked = [row for row in self.items if row.verdict != UNKNOWN]
        rows: list[list[Cell]] = []
        for subject in dict.fromkeys(row.subject for row in looked):
            rows.append([subject, "", ""])
            rows += [[f"  {row.item}", row.verdict, row.evidence] for row in looked if row.subject == subject]
        if rows:
            yield Table("", ["item", "verdict", "evidence"], rows, words=3, breaks=2)
        yield Notes(_cures(self.items), "what to do")
        yield Notes(_unlooked(self.items), "not available")

    def _summary(self) -> str:
        found = ", ".join(f"{many} {verdict}" for verdict, many in self.counts.items() if many)
        return f"{'no' if fails(self.items) else 'nothing failed'}: {found}"


ANSWERS = (PreflightAnswer, ItemsAnswer, CannotRunAnswer)


def items_answer(items: Sequence[tuple[Subject, Probe]]) -> ItemsAnswer:
    return ItemsAnswer(items=[
        ItemRow(item=item.name, subject=subject.title, asks=item.asks, reads=item.reads, needs=item.needs.split())
        for subject, item in items
    ])  # fmt: skip


def preflight_answer(
    hosts: Sequence[str], rows: Sequence[ItemVerdict], plan: PlannedJob | None, files: Sequence[str]
) -> PreflightAnswer:
    there = {row.verdict for row in rows}
    return PreflightAnswer(
        verdict=next((word for word in (FAIL, WARN, PASS) if word in there), UNKNOWN), hosts=hosts,
        counts=counts(rows), items=rows, plan=None if plan is None else _planned(plan), files=files,
        notes=() if plan is None else plan.notes,
    )  # fmt: skip


def _planned(plan: PlannedJob) -> PlannedFacts:
    training = plan.training
    return PlannedFacts(
        cluster=plan.cluster.name, gpu=plan.gpu.name, hosts=plan.hosts, host_gpus=plan.host_gpus,
        environment=plan.environment, host_network_bytes_per_s=plan.host_bytes_per_s,
        model=None if training is None else training.case.model.name,
        policy=None if training is None else training.policy,
        peak_bytes=None if training is None else training.report.peak_bytes,
        step_s=None if training is None else training.report.step_s,
        checkpoint_bytes=None if training is None else training.checkpoint_bytes,
        groups={} if training is None else training.groups,
    )  # fmt: skip


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
