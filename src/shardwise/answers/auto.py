"""`auto`: one program's split with its proof, or a line for each of several programs."""

from collections.abc import Iterator, Sequence

from msgspec import Struct

from shardwise.answers.answer import Answer, Cell, FactList, Figure, Notes, Part, Table, Text
from shardwise.answers.prove import BlocksCut, cuts_of, not_cut_notes, proof_facts, shares_of
from shardwise.report.charts import chart_svg
from shardwise.report.course_figure import course_chart
from shardwise.run.auto.plan import AutoPlan, CutRefusal, Degrees
from shardwise.run.auto.proof import NARROWED_FROM, Proof, SplitPrediction
from shardwise.units import time_text

GIB = 2.0**30


class Made(Struct, frozen=True, kw_only=True):
    """Losses of training with the split, or its torch code."""

    losses: tuple[float, ...] = ()
    code: str = ""


class RefusedProgram(Struct, frozen=True, kw_only=True, tag_field="outcome", tag="refused"):
    """One of several that was not taken, and why."""

    script: str
    refused: str


class AutoAnswer(Answer, frozen=True, kw_only=True, tag_field="outcome", tag="split"):
    script: str
    cluster: str
    split: Degrees
    holds: bool | None
    """None where there is no proof: `proof.not_run` says why"""
    proof: Proof
    prediction: SplitPrediction
    cuts: Sequence[BlocksCut]
    not_cut: Sequence[CutRefusal]
    made: Made

    @property
    def exit_code(self) -> int:
        return 0 if self.holds is not False and self.prediction.fits else 1

    def parts(self) -> Iterator[Part]:
        if self.made.code:
            yield Text(self.made.code.rstrip("\n"))
            return
        losses = self.made.losses
        yield FactList(f"{self.script} on {self.cluster}", self._facts())
        yield shares_of(self.cuts)
        if losses:
            yield Figure(lambda: _losses_svg(losses))
        yield not_cut_notes(self.not_cut)
        yield Notes(self.prediction.passed_over, "faster, but not made")

    def _facts(self) -> list[tuple[str, Cell]]:
        split, proof, losses = self.split, self.proof, self.made.losses
        step_s, peak = self.prediction.step_s, self.prediction.peak_bytes
        facts: list[tuple[str, Cell]] = [("split", f"{split.text} ({split.ranks} ranks)")]
        if step_s is not None and peak is not None:
            facts.append(("predicted", f"{time_text(step_s)} a step, {peak / GIB:,.2f} GiB on the fullest GPU"))
        if self.prediction.unknown:
            facts.append(("predicted", f"nothing: {self.prediction.unknown}"))
        facts += [("proof", _proof_words(proof)), *proof_facts(proof, self.cuts)]
        if losses:
            facts.append(("trained", f"{len(losses)} steps, loss {losses[0]:.4f} to {losses[-1]:.4f}"))
        return facts

    @property
    def cells(self) -> list[Cell]:
        proof, step_s, losses = self.proof, self.prediction.step_s, self.made.losses
        gap = "none" if proof.not_run else f"{proof.gradient_gap:.0e}" if proof.equal else "NO"
        trained = f"{losses[0]:.3f} to {losses[-1]:.3f}" if losses else "-"
        return [self.script, self.split.text, gap, "-" if step_s is None else time_text(step_s), trained]


class AutoCounts(Struct, frozen=True, kw_only=True):
    asked: int
    hold: int
    fail: int
    not_proven: int
    fit: int
    refused: int


class SeveralAnswer(Answer, frozen=True, kw_only=True):
    cluster: str
    counts: AutoCounts
    scripts: Sequence[AutoAnswer | RefusedProgram]

    @property
    def taken(self) -> list[AutoAnswer]:
        return [each for each in self.scripts if isinstance(each, AutoAnswer)]

    @property
    def exit_code(self) -> int:
        """2: no script was taken."""
        return max((each.exit_code for each in self.taken), default=2)

    def parts(self) -> Iterator[Part]:
        taken, hold = self.taken, self.counts.hold
        yield Table(
            f"{hold} of {self.counts.asked} on {self.cluster} hold", ["script", "split", "proof", "step", "loss"],
            [each.cells for each in taken], words=5, breaks=1,
        )  # fmt: skip
        yield Notes([f"{a.script}: {a.proof.why}" for a in taken if a.proof.why], "proofs that do not hold")
        yield Notes([f"{a.script}: {a.proof.not_run}" for a in taken if a.proof.not_run], "not proven")
        yield Notes([f"{a.script}: {a.prediction.unknown}" for a in taken if a.prediction.unknown], "not predicted")
        refused = [each for each in self.scripts if isinstance(each, RefusedProgram)]
        yield Notes([f"{each.script}: {each.refused}" for each in refused], "not taken")


ANSWERS = (AutoAnswer, SeveralAnswer)


def auto_answer(
    script: str, cluster: str, plan: AutoPlan, prediction: SplitPrediction, proof: Proof, made: Made
) -> AutoAnswer:
    return AutoAnswer(
        script=script, cluster=cluster, split=plan.degrees, holds=None if proof.not_run else proof.equal, proof=proof,
        prediction=prediction, cuts=cuts_of(plan), not_cut=plan.all_refusals, made=made,
    )  # fmt: skip


def several_answer(cluster: str, found: Sequence[AutoAnswer | RefusedProgram]) -> SeveralAnswer:
    taken = [each for each in found if isinstance(each, AutoAnswer)]
    holds = [each.holds for each in taken]
    counts = AutoCounts(
        asked=len(found), hold=holds.count(True), fail=holds.count(False), not_proven=holds.count(None),
        fit=sum(each.prediction.fits for each in taken), refused=len(found) - len(taken),
    )  # fmt: skip
    return SeveralAnswer(cluster=cluster, counts=counts, scripts=found)


def _proof_words(proof: Proof) -> str:
    if proof.not_run:
        return f"NOT made: {proof.not_run}"
    copied = "a small copy"
    if proof.narrowed > 1:
        copied = f"a copy of few blocks, its whole numbers from {NARROWED_FROM} up {proof.narrowed} times smaller"
    return f"{proof.plan} on {proof.ranks} ranks of this machine, {copied}"


def _losses_svg(losses: Sequence[float]) -> str:
    return chart_svg(course_chart("loss of the split model", [("loss", [("loss", list(enumerate(losses)))])], "step"))
