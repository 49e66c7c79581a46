"""`shardwise verify`: a split of the user's own model, run on ranks of this machine and held against one process."""

from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter
from msgspec import Struct, structs

from shardwise.fields import read_file
from shardwise.run.auto.plan import AutoPlan, Degrees, degrees_of, plan_file
from shardwise.run.auto.proof import Proof
from shardwise.show.cli._html import draw_amounts
from shardwise.show.cli._options import Json, within
from shardwise.show.cli._output import Cell, print_facts, print_json, print_notes
from shardwise.show.cli._torch import needs_torch

DOES_NOT_HOLD = 1
MOST_RANKS, MOST_STEPS, MOST_BYTES = 16, 1000, 2**24
DTYPES = ("float64", "float32")
STEPS_SHOWN = 20


def prove(
    script: Annotated[Path, Parameter(help="Your Python file with build, batch and step; its code is run.")],
    plan: Annotated[
        str,
        Parameter(help="fsdp=2,tp=2 (also pp, vpp, schedule, cp, ep, sp, micro, recompute, offload), or a plan file."),
    ],
    /,
    *,
    ranks: Annotated[
        int | None, Parameter(help="Ranks on this machine; FSDP takes those the plan leaves. Default: the plan's.")
    ] = None,
    steps: Annotated[int, Parameter(help="Training steps to compare."), within(2, MOST_STEPS)] = 20,
    dtype: Annotated[str, Parameter(help="float64: equal to 1e-9; float32: to 1e-5.")] = "float64",
    json: Json = False,
) -> int:
    """Losses and the gradient of every parameter of a split model, equal to one process?"""
    stated = plan_file(Path(plan)) if "=" not in plan and plan != "recompute" else None
    degrees = _filled(degrees_of(plan) if stated is None else stated.degrees, ranks)
    if dtype not in DTYPES:
        raise ValueError(f"dtype: {dtype!r} is unknown; write {' or '.join(DTYPES)}")
    read_file(script, "script", MOST_BYTES, "the path of a Python file")  # before torch takes its seconds
    needs_torch("prove")
    from shardwise.run.auto.prove import plan_of, proven
    from shardwise.run.auto.script import opened, program_in
    from shardwise.run.auto.truth import truth_of

    with opened(script) as (read, names):
        program = program_in(read, names, steps, dtype)
        truth = truth_of(program)
        found = plan_of(program, degrees) if stated is None else structs.replace(stated, degrees=degrees)
        proof = proven(program, found, truth)
    if json:
        print_json({"script": script.name, "holds": proof.equal, "proof": proof, "cuts": cuts_of(found),
                    "not_cut": found.all_refusals})  # fmt: skip
    else:
        print_facts(f"{script.name}, {proof.plan} on {proof.ranks} ranks", facts_of(proof, found))
        draw_shares(found)
        print_notes([f"{each.where}: {each.why}" for each in found.all_refusals], title="not cut")
    return 0 if proof.equal else DOES_NOT_HOLD


def _filled(degrees: Degrees, ranks: int | None) -> Degrees:
    """FSDP over the ranks that are left."""
    if ranks is None:
        ranks = degrees.ranks
    if not 1 <= ranks <= MOST_RANKS:
        raise ValueError(f"ranks: {ranks} is out of range; write 1 to {MOST_RANKS}, they are processes of this machine")
    others = degrees.ranks // degrees.dp
    if ranks % degrees.ranks or (degrees.dp > 1 and ranks != degrees.ranks):
        raise ValueError(
            f"ranks: {ranks} is not what {degrees.text} takes; write --ranks {degrees.ranks} or another plan"
        )
    return structs.replace(degrees, dp=ranks // others)


class BlocksCut(Struct, frozen=True, kw_only=True):
    """What is cut in blocks that are alike, in words."""

    block: str
    blocks: int
    share: float
    """of their parameters"""
    cuts: tuple[str, ...]


def cuts_of(plan: AutoPlan) -> tuple[BlocksCut, ...]:
    return tuple(
        BlocksCut(block=kind.class_name, blocks=len(kind.blocks), cuts=tuple(map(_text, kind.cuts)),
                  share=kind.split_parameters / max(kind.parameters, 1))
        for kind in plan.kinds
    )  # fmt: skip


def draw_shares(plan: AutoPlan) -> None:
    """On a page: how much of each kind of block is cut."""
    shares = {kind.class_name: kind.split_parameters / max(kind.parameters, 1) for kind in plan.kinds}
    draw_amounts("parameters that are cut", {name: (share, f"{share:.0%}") for name, share in shares.items()})


def _text(cut: Any) -> str:
    if cut.stacks:
        return f"{cut.around}: experts by width"
    return f"{', '.join(column.module for column in cut.columns)} by columns, {cut.row} by rows"


def facts_of(proof: Proof, plan: AutoPlan) -> list[tuple[str, Cell]]:
    holds = "not known" if proof.not_run else "yes" if proof.equal else f"NO: {proof.why}"
    facts: list[tuple[str, Cell]] = [("holds", holds)]
    for kind in plan.kinds:
        if kind.cuts:
            share = kind.split_parameters / max(kind.parameters, 1)
            facts.append((kind.class_name, f"{len(kind.blocks)} blocks, {share:.0%} of their parameters cut"))
            facts += [("", _text(cut)) for cut in kind.cuts]
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
            ("memory", f"{proof.peak_bytes / 2**20:,.1f} MiB at once on the fullest rank, activations with it: "
                       f"{memory}"),
            ("checkpoint", f"{'loads' if proof.checkpoint_equal else 'does NOT load'} into the plain model"),
        ]  # fmt: skip
    return facts
