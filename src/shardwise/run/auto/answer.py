"""What `auto` does with a program: understood, planned for a cluster, proven on a small copy, and trained."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from shardwise.run.auto.choose import Choice, chosen
from shardwise.run.auto.loop import trained_loop
from shardwise.run.auto.matrices import NO_PIECES, whole_matrices
from shardwise.run.auto.narrow import DIVISORS, same_form, same_shapes
from shardwise.run.auto.norms import Clip
from shardwise.run.auto.plan import AutoPlan
from shardwise.run.auto.program import UserProgram, forward_loss
from shardwise.run.auto.proof import NARROWED_FROM, Proof
from shardwise.run.auto.prove import plan_of, proven
from shardwise.run.auto.refusals import RefusedSplit, keep_refusal, kept_refusals, parts_of, program_key
from shardwise.run.auto.room import fits_with_values, refuse_trained
from shardwise.run.auto.shorter import FEW_TOKENS, extent_of, short_batches
from shardwise.run.auto.skeleton import NotShorter, skeleton_of
from shardwise.run.auto.small import few_blocks, few_ranks
from shardwise.run.auto.source import ProgramSource
from shardwise.run.auto.trained import trained
from shardwise.run.auto.truth import truth_of
from shardwise.run.auto.wide import comparable
from shardwise.run.trace.script import ScriptError
from shardwise.spec.cluster import Cluster

PROOF_STEPS = 20
MOST_PROVEN = 4
"""plans, before the first one's proof is told"""


@dataclass(frozen=True)
class SplitProgram:
    """The split to make, its proof, and the losses of training with it."""

    choice: Choice
    proof: Proof
    losses: list[float]


def answered(
    source: ProgramSource, cluster: Cluster, fix: Sequence[str], steps: int, said: Callable[[str], None]
) -> SplitProgram:
    """`steps`: to train, with as many ranks of this machine as the plan has; 0: it is not trained."""
    said("understanding the model")
    outline = large_outline(source)
    if outline is None:
        program = source.make(PROOF_STEPS, "float64")
        proven_on: Callable[[AutoPlan], tuple[Proof, list[Clip]]] = lambda plan: _proven(program, plan)  # noqa: E731
    else:
        if steps:
            _refuse_trained(outline, cluster.gpus, steps)
        outline, program = None, _skeleton(source)  # the whole would keep blocks, whose memory the proof may need
        proven_on = lambda plan: _proven_narrow(source, plan)  # noqa: E731
    choice, proof, clips = _choice_that_holds(source, program, cluster, fix, proven_on, said)
    if not steps or not proof.equal:
        return SplitProgram(choice, proof, [])
    said(f"training {steps} steps on {choice.plan.degrees.ranks} ranks")
    if program.loop is not None:
        return SplitProgram(choice, proof, trained_loop(program.loop, choice.plan, steps))
    return SplitProgram(choice, proof, trained(source.make(steps - 1, "float32"), choice.plan, clips))


def _choice_that_holds(
    source: ProgramSource, program: UserProgram, cluster: Cluster, fix: Sequence[str],
    proven_on: Callable[[AutoPlan], tuple[Proof, list[Clip]]], said: Callable[[str], None],
) -> tuple[Choice, Proof, list[Clip]]:  # fmt: skip
    """Of a split that its proof refuses the next one is planned without what it does; and so the next time."""
    key = program_key(source.text, program.model)
    refusals, first = kept_refusals(key), None
    for _ in range(MOST_PROVEN):
        choice = chosen(program, cluster, fix, refusals)
        if first is not None and choice.policy is None:
            return first
        said(f"proving {choice.plan.degrees.text} on a small copy")
        proof, clips = proven_on(choice.plan)
        first = first or (choice, proof, clips)
        if proof.equal or proof.not_run or choice.policy is None:
            return choice, proof, clips
        refusals.append(RefusedSplit(parts_of(choice.plan.degrees), proof.why))
        keep_refusal(key, refusals[-1])
    assert first is not None
    return first


def understood_source(source: ProgramSource, cluster: Cluster, fix: Sequence[str]) -> Choice:
    """The split to make, not proven."""
    outline = large_outline(source)
    program = source.make(1, "float64") if outline is None else _skeleton(source)
    if whole_matrices(program.model, program.optimizers):
        fix = [*fix, NO_PIECES]
    return chosen(program, cluster, fix, kept_refusals(program_key(source.text, program.model)))


def _skeleton(source: ProgramSource) -> UserProgram:
    """Where tokens are written into the code, of that code with fewer."""
    outline = source.outline()
    assert outline is not None
    try:
        return skeleton_of(outline)
    except NotShorter:
        want = extent_of(outline.batches[0])
        if source.shorter is None or not want.tokens:
            raise
        plain = source.outline()
        with source.shorter(want.tokens, FEW_TOKENS[-1]) as short:
            found = short.outline()
        if found is None or plain is None or not same_shapes(found.model, plain.model):
            raise
        return skeleton_of(found, want)


def large_outline(source: ProgramSource) -> UserProgram | None:
    """Of a program that is too large to be looked at with all its values; None where it is not, or where its code wants
    values."""
    outline = source.outline()
    if outline is None:
        return None
    return None if fits_with_values(_size(outline), extent_of(outline.batches[0]).rows) else outline


def _size(program: UserProgram) -> int:
    return sum(p.numel() for p in program.model.parameters())


def _refuse_trained(outline: UserProgram, ranks: int, steps: int) -> None:
    why = refuse_trained(_size(outline), ranks, steps * extent_of(outline.batches[0]).rows)
    if why:
        raise ScriptError(why)


def _proven(program: UserProgram, plan: AutoPlan) -> tuple[Proof, list[Clip]]:
    fewer = few_ranks(plan.degrees, program.samples)
    small = few_blocks(program, plan, fewer)
    truth = truth_of(small)
    return proven(small, plan_of(small, fewer), truth), truth.clips


def _short(program: UserProgram) -> UserProgram:
    """On shorter batches, where its code takes them."""
    found = UserProgram(program.parts, program.step, short_batches(program.batches), program.dtype)
    try:
        with comparable(wide=True):
            forward_loss(found.copy(), found.batches[0])
    except Exception:  # code that wants the tokens it was written for
        return program
    return found


def _proven_narrow(source: ProgramSource, plan: AutoPlan) -> tuple[Proof, list[Clip]]:
    """Of a copy whose numbers are smaller; where there is none, that is told in place of a proof."""
    outline = source.outline()
    assert outline is not None
    why = "its code has no smaller form"
    for divisor in DIVISORS if source.narrow is not None else ():
        assert source.narrow is not None
        with source.narrow(divisor) as narrow:
            found = narrow.outline()
            if found is None or not same_form(found.model, outline.model):
                why = f"its code does not run, or makes other blocks, with numbers from {NARROWED_FROM} up made smaller"
                continue
            if not fits_with_values(_size(found), 1):
                why = f"{_size(found):,} parameters, with whole numbers from {NARROWED_FROM} up {divisor} times smaller"
                continue
            program = _short(narrow.make(PROOF_STEPS, "float64"))
            if not fits_with_values(_size(program), extent_of(program.batches[0]).rows):
                why = "its code does not take shorter batches"
                continue
            proof, clips = _proven(program, plan)
            return replace(proof, narrowed=divisor), clips
    size = _size(outline)
    told = f"{size:,} parameters are too many to be trained in 64 bits here, and no narrow copy can be ({why})"
    return Proof(plan=plan.degrees.text, ranks=0, steps=0, dtype="", tolerance=0.0, not_run=told), []
