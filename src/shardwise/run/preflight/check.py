"""Every item over every node: verdicts, merged where there are several nodes."""

from collections.abc import Callable, Iterable, Sequence
from functools import cache

from msgspec import Struct

from shardwise.registry import closest, plugins_of
from shardwise.run.preflight.finding import FAIL, WORST, Finding, Probe, Subject, few, unknown
from shardwise.run.preflight.node import Node
from shardwise.run.preflight.planned import PlannedJob

PACKAGE = "shardwise.run.preflight.subjects"
MISSING = {
    "plan": ("needs a plan", "name a model and its policy, or a plan file"),
    "cluster": ("needs a cluster", "write --on, or name a plan"),
    "measure": ("not measured", "write --measure"),
    "nodes": ("one node", "run it on all with torchrun, or compare their facts with --gather"),
    "trial": ("no trial run", "train a few steps; write --trial with its log or traces"),
}  # fmt: skip


class ItemVerdict(Struct, frozen=True, kw_only=True):
    """One item as it is shown."""

    item: str
    subject: str
    asks: str
    reads: str
    verdict: str
    evidence: str
    cure: str
    hosts: list[str]
    """whose verdict it is"""


@cache
def subjects() -> tuple[Subject, ...]:
    return tuple(sorted(plugins_of(PACKAGE, "SUBJECT", Subject).values(), key=lambda each: (each.order, each.title)))


def chosen(only: Sequence[str] = (), skip: Sequence[str] = ()) -> list[tuple[Subject, Probe]]:
    """By names of items or titles of subjects; an unknown one is a ValueError."""
    every = [(subject, item) for subject in subjects() for item in subject.items]
    known = {word for subject, item in every for word in (subject.title, item.name)}
    for flag, names in (("only", only), ("skip", skip)):
        for name in names:
            if name not in known:
                raise ValueError(f"{flag}: {name!r} is not an item; {closest(name[:60], sorted(known))}")
    found = [
        (subject, item) for subject, item in every
        if (not only or {subject.title, item.name} & set(only)) and not {subject.title, item.name} & set(skip)
    ]  # fmt: skip
    if not found:
        raise ValueError("skip: nothing is left to look at; write fewer names")
    return found


def checked(
    nodes: Sequence[Node], plan: PlannedJob | None, items: Iterable[tuple[Subject, Probe]],
    told: Callable[[str], None] = lambda _: None,
) -> list[ItemVerdict]:  # fmt: skip
    rows = []
    for subject, item in items:
        told(item.name)
        found, hosts = _verdict(item, nodes, plan)
        rows.append(
            ItemVerdict(
                item=item.name, subject=subject.title, asks=item.asks, reads=item.reads, verdict=found.verdict,
                evidence=_line(found.evidence), cure=_line(found.cure), hosts=hosts,
            )
        )  # fmt: skip
    return rows


def counts(rows: Sequence[ItemVerdict]) -> dict[str, int]:
    return {verdict: sum(row.verdict == verdict for row in rows) for verdict in reversed(WORST)}


def fails(rows: Sequence[ItemVerdict]) -> bool:
    return any(row.verdict == FAIL for row in rows)


def _verdict(item: Probe, nodes: Sequence[Node], plan: PlannedJob | None) -> tuple[Finding, list[str]]:
    names = [node.host for node in nodes]
    lacking = _lacking(item, nodes, plan)
    if lacking:
        evidence, cure = MISSING[lacking]
        return unknown(evidence, cure), names
    if item.across is not None:
        return item.across(nodes, plan), names
    if item.look is None:
        raise TypeError(f"{item.name} looks at nothing")
    return _merged([(node.host, item.look(node, plan)) for node in nodes])


def _lacking(item: Probe, nodes: Sequence[Node], plan: PlannedJob | None) -> str:
    there = {
        "": True, "plan": plan is not None and plan.training is not None, "cluster": plan is not None,
        "measure": any(node.measured.seconds is not None for node in nodes), "nodes": len(nodes) > 1,
        "trial": any(node.measured.trial is not None for node in nodes),
    }  # fmt: skip
    return next((need for need in item.needs.split() if not there[need]), "")


def _merged(found: Sequence[tuple[str, Finding]]) -> tuple[Finding, list[str]]:
    """The worst counts; of several hosts those that have it are named."""
    worst = min((finding for _, finding in found), key=lambda finding: WORST.index(finding.verdict))
    hosts = [host for host, finding in found if finding.verdict == worst.verdict]
    if len(found) == 1:
        return worst, hosts
    evidence = worst.evidence
    if len(hosts) < len(found):
        evidence = f"{few(hosts)}: {evidence} ({len(hosts)} of {len(found)} hosts)"
    elif len({finding.evidence for _, finding in found}) > 1:
        evidence = f"{hosts[0]}: {evidence} ({worst.verdict} on all {len(found)})"
    return Finding(worst.verdict, evidence, worst.cure), hosts


def _line(text: str) -> str:
    """Names come from files: one line, nothing that moves a cursor, not too long."""
    words = " ".join(text.split())
    shown = "".join(letter if letter.isprintable() else "?" for letter in words)
    return shown if len(shown) <= 400 else shown[:397] + "..."
