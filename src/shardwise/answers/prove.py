"""`verify SCRIPT`: a split of the user's own model held against one process."""

from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import Struct

from shardwise.answers.answer import Answer, Bars, Cell, FactList, Notes, Part
from shardwise.run.auto.plan import AutoPlan, CutRefusal
from shardwise.run.auto.proof import Proof

STEPS_SHOWN = 20


class BlocksCut(Struct, frozen=True, kw_only=True):
    """What is cut in blocks that are alike, in words."""

    block: str
    blocks: int
    share: float
    """of their parameters"""
    cuts: tuple[str, ...]


class ProveAnswer(Answer, frozen=True, kw_only=True):
    script: str
    holds: bool
    proof: Proof
    cuts: Sequence[BlocksCut]
    not_cut: Sequence[CutRefusal]

    @property
    def exit_code(self) -> int:
        return 0 if self.holds else 1

    def parts(self) -> Iterator[Part]:
        title = f"{self.script}, {self.proof.plan} on {self.proof.ranks} ranks"
        yield FactList(title, proof_facts(self.proof, self.cuts))
        yield shares_of(self.cuts)
        yield not_cut_notes(self.not_cut)


ANSWERS = (ProveAnswer,)


def prove_answer(script: str, proof: Proof, plan: AutoPlan) -> ProveAnswer:
    return ProveAnswer(
        script=script, holds=proof.equal, proof=proof, cuts=cuts_of(plan), not_cut=plan.all_refusals,
    )  # fmt: skip


def not_cut_notes(refusals: Sequence[CutRefusal]) -> Notes:
    return Notes([f"{each.where}: {each.why}" for each in refusals], "not cut")


def shares_of(cuts: Sequence[BlocksCut]) -> Bars:
    """How much of each kind of block is cut."""
    return Bars("parameters that are cut", {each.block: (each.share, f"{each.share:.0%}") for each in cuts})


def cuts_of(plan: AutoPlan) -> tuple[BlocksCut, ...]:
    return tuple(
        BlocksCut(block=kind.class_name, blocks=len(kind.blocks), cuts=tuple(map(_text, kind.cuts)),
                  share=kind.split_parameters / max(kind.parameters, 1))
        for kind in plan.kinds
    )  # fmt: skip


def _text(cut: Any) -> str:
    if cut.stacks:
        return f"{cut.around}: experts by width"
    return f"{', '.join(column.module for column in cut.columns)} by columns, {cut.row} by rows"


def proof_facts(proof: Proof, cuts: Sequence[BlocksCut]) -> list[tuple[str, Cell]]:
    holds = "not known" if proof.not_run else "yes" if proof.equal else f"NO: {proof.why}"
    facts: list[tuple[str, Cell]] = [("holds", holds)]
    for each in cuts:
        if each.cuts:
            facts.append((each.block, f"{each.blocks} blocks, {each.share:.0%} of their parameters cut"))
            facts += [("", cut) for cut in each.cuts]
    if proof.compared:
        messages = {True: "equal", False: "NOT equal", None: "not predicted"}[proof.messages_equal]
        memory = "not predicted" if proof.memory_gap is None else f"{proof.memory_gap:.1%} off the prediction"
        facts += [
            ("losses", f"{proof.loss_gap:.1e} apart at most over {proof.steps} steps ({proof.dtype})"),
            ("gradients", f"{proof.compared} of {proof.trainable} parameters compared at each of {proof.steps} steps "
                          f"({proof.gradients:,} in all), {proof.gradient_gap:.1e} apart at most ({proof.worst})"),
            ("worst by step", " ".join(f"{gap:.0e}" for gap in proof.gradient_gaps[:STEPS_SHOWN])
                              + (" ..." if proof.steps > STEPS_SHOWN else "")),
            *([("buffers", f"{proof.buffers} compared after the last step, {proof.buffer_gap:.1e} apart at most")]
              if proof.buffers else []),
            ("messages", f"{proof.messages:,} a step on rank 0, to the prediction: {messages}"),
            ("holds most", f"{proof.share:.1%} of the parameters; with optimizer state {proof.state_gap:.1%} off the "
                           "prediction"),
            *([("memory", f"{proof.peak_bytes / 2**20:,.1f} MiB at once on the fullest rank, activations with it: "
                         f"{memory}")] if proof.peak_bytes else []),
            ("checkpoint", f"{'loads' if proof.checkpoint_equal else 'does NOT load'} into the plain model"),
        ]  # fmt: skip
    return facts
