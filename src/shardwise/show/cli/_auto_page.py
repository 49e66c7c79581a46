"""What `auto` prints: one program's answer, or a line for each of several."""

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from shardwise.run.auto.plan import CutRefusal, Degrees
from shardwise.run.auto.proof import NARROWED_FROM, Proof, SplitPrediction
from shardwise.show.cli._html import draw
from shardwise.show.cli._output import Cell, print_facts, print_notes, print_table
from shardwise.show.cli.prove import BlocksCut, cuts_of, draw_shares, facts_of
from shardwise.spec.cluster import Cluster
from shardwise.units import time_text

GIB = 2.0**30


class Made(Struct, frozen=True, kw_only=True):
    """What came of it besides: losses of training, or torch code."""

    losses: tuple[float, ...] = ()
    code: str = ""


class RefusedProgram(Struct, frozen=True, kw_only=True):
    """One of several that was not taken, and why."""

    script: str
    refused: str


class AutoReport(Struct, frozen=True, kw_only=True):
    """One program's answer, as JSON."""

    script: str
    cluster: str
    split: Degrees
    holds: bool | None
    """None where there is no proof: `proof.not_run` says why"""
    proof: Proof
    prediction: SplitPrediction
    cuts: tuple[BlocksCut, ...]
    not_cut: tuple[CutRefusal, ...]
    made: Made


def answer_data(name: str, cluster: Cluster, found: Any, code: str) -> AutoReport:
    """`found`: an AutoAnswer."""
    choice, proof = found.choice, found.proof
    return AutoReport(
        script=name, cluster=cluster.name, split=choice.plan.degrees, holds=None if proof.not_run else proof.equal,
        proof=proof, prediction=choice.prediction, cuts=cuts_of(choice.plan), not_cut=choice.plan.all_refusals,
        made=Made(losses=tuple(found.losses), code=code),
    )  # fmt: skip


def show_answer(name: str, cluster: Cluster, found: Any) -> None:
    choice = found.choice
    print_facts(f"{name} on {cluster.name}", _facts(choice, found.proof, found.losses))
    draw_shares(choice.plan)
    if found.losses:
        draw(lambda: _losses_svg(found.losses))
    print_notes([f"{each.where}: {each.why}" for each in choice.plan.all_refusals], title="not cut")
    print_notes(choice.prediction.passed_over, title="faster, but not made")


def counts_of(answers: Sequence[tuple[str, Any]]) -> dict[str, int]:
    taken = [found for _, found in answers if not isinstance(found, RefusedProgram)]
    holds = [None if each.proof.not_run else each.proof.equal for each in taken]
    fit = sum(each.choice.prediction.fits for each in taken)
    return {"asked": len(answers), "hold": holds.count(True), "fail": holds.count(False),
            "not_proven": holds.count(None), "fit": fit, "refused": len(answers) - len(taken)}  # fmt: skip


def show_answers(cluster: Cluster, answers: Sequence[tuple[str, Any]]) -> None:
    taken = [(name, found) for name, found in answers if not isinstance(found, RefusedProgram)]
    rows = [(name, found.choice.plan.degrees.text, _holds(found), _step(found), _trained(found))
            for name, found in taken]  # fmt: skip
    counts = counts_of(answers)
    print_table(
        f"{counts['hold']} of {len(answers)} on {cluster.name} hold",
        ["script", "split", "proof", "step", "loss"], rows, words=5, breaks=1,
    )  # fmt: skip
    print_notes([f"{name}: {f.proof.why}" for name, f in taken if f.proof.why], title="proofs that do not hold")
    print_notes([f"{name}: {f.proof.not_run}" for name, f in taken if f.proof.not_run], title="not proven")
    print_notes([f"{name}: {f.choice.prediction.unknown}" for name, f in taken if f.choice.prediction.unknown],
                title="not predicted")  # fmt: skip
    print_notes([f"{name}: {found.refused}" for name, found in answers if isinstance(found, RefusedProgram)],
                title="not taken")  # fmt: skip


def _holds(found: Any) -> str:
    if found.proof.not_run:
        return "none"
    return f"{found.proof.gradient_gap:.0e}" if found.proof.equal else "NO"


def _step(found: Any) -> str:
    told = found.choice.prediction
    return "-" if told.step_s is None else time_text(told.step_s)


def _trained(found: Any) -> str:
    return f"{found.losses[0]:.3f} to {found.losses[-1]:.3f}" if found.losses else "-"


def _proof_words(proof: Any) -> str:
    if proof.not_run:
        return f"NOT made: {proof.not_run}"
    copied = "a small copy"
    if proof.narrowed > 1:
        copied = f"a copy of few blocks, its whole numbers from {NARROWED_FROM} up {proof.narrowed} times smaller"
    return f"{proof.plan} on {proof.ranks} ranks of this machine, {copied}"


def _losses_svg(losses: list[float]) -> str:
    from shardwise.report.charts import chart_svg
    from shardwise.report.course_figure import course_chart

    return chart_svg(course_chart("loss of the split model", [("loss", [("loss", list(enumerate(losses)))])], "step"))


def _facts(choice: Any, proof: Any, losses: list[float]) -> list[tuple[str, Cell]]:
    facts: list[tuple[str, Cell]] = [("split", f"{choice.plan.degrees.text} ({choice.plan.degrees.ranks} ranks)")]
    told = choice.prediction
    if told.step_s is not None:
        peak = told.peak_bytes / GIB
        facts.append(("predicted", f"{time_text(told.step_s)} a step, {peak:,.2f} GiB on the fullest GPU"))
    if told.unknown:
        facts.append(("predicted", f"nothing: {told.unknown}"))
    facts.append(("proof", _proof_words(proof)))
    facts += facts_of(proof, choice.plan)
    if losses:
        facts.append(("trained", f"{len(losses)} steps, loss {losses[0]:.4f} to {losses[-1]:.4f}"))
    return facts
