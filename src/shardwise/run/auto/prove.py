"""A split held against one process: losses, the gradient of every parameter, messages, and what a checkpoint holds."""

from msgspec.structs import replace
from torch import Tensor

from shardwise.run.auto.blocks import until_backward
from shardwise.run.auto.causes import cause_of
from shardwise.run.auto.context import cannot_share_tokens
from shardwise.run.auto.gaps import FLOORS, TOLERANCES, counted, gradient_gaps, tolerance_of
from shardwise.run.auto.live import foretold_peak
from shardwise.run.auto.means import token_means_seen, uneven_labels
from shardwise.run.auto.plan import AutoPlan, Degrees
from shardwise.run.auto.program import UserProgram
from shardwise.run.auto.proof import Proof
from shardwise.run.auto.rank import RankSeen, gap_words, loop_rank_seen, rank_seen
from shardwise.run.auto.stage import cannot_stage
from shardwise.run.auto.truth import Truth
from shardwise.run.auto.understand import understood
from shardwise.run.auto.watch import samples_of
from shardwise.run.auto.wide import comparable
from shardwise.run.runtime.train.fork import cause_line, forked

MOST_WORDS = 400
"""characters of the reason why a split does not run"""


def plan_of(program: UserProgram, degrees: Degrees) -> AutoPlan:
    """What can be cut, asked of a copy; nothing of the program is changed."""
    own = program.copy()
    batch = own.batches[0]
    samples = samples_of(batch)
    seen: list[bool] = []

    def run() -> list[Tensor]:
        with (
            comparable(wide=own.dtype == "float64"),
            until_backward() as losses,
            token_means_seen(lambda: samples) as averaged,
        ):
            own.step(*own.parts, batch)
        seen[:] = averaged
        return losses

    plan = understood(own.model, run, degrees, samples)
    apart = any(seen) or any(uneven_labels(each, samples) for each in own.batches)
    return own.told(replace(plan, token_means=len(seen) if apart else 0))


def proven(program: UserProgram, plan: AutoPlan, truth: Truth) -> Proof:
    """Runs it on gloo ranks of this machine."""
    proof = begun(program, plan)
    why = cannot_prove(program, plan, truth)
    if why:
        return replace(proof, why=why)
    try:
        work = rank_seen if program.loop is None else loop_rank_seen
        ranks = forked(plan.degrees.ranks, lambda _: work(program.copy(), truth, plan))
    except RuntimeError as error:
        return not_run(proof, error)
    return judged(proof, ranks, program, plan, truth)


def begun(program: UserProgram, plan: AutoPlan) -> Proof:
    return Proof(
        plan=plan.degrees.text, ranks=plan.degrees.ranks, steps=len(program.batches) - 1, dtype=program.dtype,
        tolerance=TOLERANCES[program.dtype], trainable=sum(p.requires_grad for p in program.model.parameters()),
    )  # fmt: skip


def not_run(proof: Proof, error: RuntimeError) -> Proof:
    return replace(proof, why=f"it does not run: {cause_line(str(error))[:MOST_WORDS]}")


def judged(proof: Proof, ranks: list[RankSeen], program: UserProgram, plan: AutoPlan, truth: Truth) -> Proof:
    if program.loop is not None:
        return _judged(proof, ranks, program, truth, [])
    found = _judged(proof, ranks, program, truth, _foretold_peaks(program, plan, truth))
    if found.why and not truth.not_finite:
        allowed = tolerance_of(program, truth, max(found.gradient_gap, found.loss_gap))
        found = replace(found, tolerance=allowed)
        found = replace(found, why=_why(found, ranks, truth))
        cause = cause_of(program, plan.degrees, proof.tolerance, truth.side_effects) if found.why else ""
        return replace(found, why=f"{found.why}: {cause}") if cause else found
    return found


def _foretold_peaks(program: UserProgram, plan: AutoPlan, truth: Truth) -> list[int]:
    """Of every rank; none where a rank does not run alone: what it would have received may be any number."""
    try:
        ranks = range(plan.degrees.ranks)
        return [foretold_peak(program, plan, truth.clips, rank, truth.choices) for rank in ranks]
    except (RuntimeError, ValueError, IndexError):
        return []


def cannot_prove(program: UserProgram, plan: AutoPlan, truth: Truth) -> str:
    samples, parts = samples_of(program.batches[0]), plan.degrees.dp * plan.degrees.micro_batches
    if samples % parts:
        return f"{samples} samples are not shared evenly by {parts}"
    if plan.degrees.pp > 1 and truth.backwards > 1:
        return f"the step calls backward {truth.backwards} times: stages run one, and make micro-batches themselves"
    if plan.degrees.pp > 1 and truth.side_effects:
        return (
            f"{truth.side_effects[0]}, is not part of training the model: stages run what is before backward for every "
            "micro-batch, and of what is after it only torch's clipping, optimizers, schedulers and zero_grad"
        )
    return program.cannot(plan.degrees) or refused(plan)


def refused(plan: AutoPlan) -> str:
    """Empty, or why the plan is not carried out as it stands."""
    degrees = plan.degrees
    if plan.token_means and degrees.pp > 1:
        return (
            "the loss averages over tokens whose number differs between samples: stages begin backward passes before "
            "all are counted; write a mean over samples"
        )
    if not plan.kinds:
        return "no module repeats" if degrees.ranks > degrees.dp or degrees.ep > 1 else ""
    if degrees.tp > 1 and not any(kind.cuts for kind in plan.kinds):
        return (
            f"no GEMM of the blocks can be cut: {plan.all_refusals[0].why}" if plan.all_refusals else "nothing is cut"
        )
    if degrees.replicas > 1 and max(degrees.cp, degrees.ep) > 1:
        return "copies of shards (dp with fsdp) are not supported with cp or ep"
    if degrees.ep > 1:
        if degrees.ep != degrees.ranks or degrees.dp != degrees.ranks:
            return "experts are shared out over all ranks of fsdp, alone: not over some, nor with tp, pp or cp"
        homes = [kind.no_homes for kind in plan.kinds if not kind.homes]
        if len(homes) == len(plan.kinds):
            return f"no experts are shared out: {homes[0]}"
    if degrees.sp:
        if degrees.cp > 1:
            return "sp with cp: the tokens of a rank are shared once"
        holders = {name.rpartition(".")[0] for name in plan.order}
        why = next((k.whole_tokens for k in plan.kinds if k.whole_tokens), "")
        why = why or ("several stacks of blocks: the tokens of one are shared" if len(holders) > 1 else "")
        if why:
            return why
    if degrees.pp > 1 and degrees.cp > 1:
        return "stages of a shared sequence are not made"
    return (cannot_stage(plan) if degrees.pp > 1 else "") or (cannot_share_tokens(plan) if degrees.cp > 1 else "")


def _judged(proof: Proof, ranks: list[RankSeen], program: UserProgram, truth: Truth, peaks: list[int]) -> Proof:
    trained = {name: p.numel() for name, p in program.model.named_parameters() if p.requires_grad}
    steps = [gradient_gaps([rank.gaps[number] for rank in ranks], truth.gradients[number], trained, FLOORS[proof.dtype])
             for number in range(len(truth.gradients))]  # fmt: skip
    worst = {name: max(gaps.get(name, 0.0) for gaps in steps) for gaps in steps for name in gaps}
    name = max(worst, key=lambda each: worst[each], default="")
    seen = [rank.losses for rank in ranks if rank.losses]
    losses = [sum(each) / len(seen) for each in zip(*seen, strict=True)]
    loss_gaps = tuple(counted(abs(a - b) / max(abs(b), 1e-30)) for a, b in zip(losses, truth.losses, strict=True))
    buffers = {each: max(rank.buffers.get(each, 0.0) for rank in ranks) for rank in ranks for each in rank.buffers}
    buffer = max(buffers, key=lambda each: buffers[each], default="")
    size = sum(p.numel() for p in program.model.parameters())
    foretold_ones = [rank.messages for rank in ranks if rank.messages is not None]
    memory = [abs(told / rank.peak - 1) for told, rank in zip(peaks, ranks, strict=False) if rank.peak]
    judged = replace(
        proof, loss_gap=max(loss_gaps), loss_gaps=loss_gaps, gradient_gap=worst.get(name, 0.0), worst=name,
        gradient_gaps=tuple(max(gaps.values(), default=0.0) for gaps in steps),
        compared=min(map(len, steps)), gradients=sum(map(len, steps)),
        checkpoint_equal=not any(rank.checkpoint for rank in ranks), messages=ranks[0].count,
        messages_equal=all(foretold_ones) if foretold_ones else None,
        state_gap=max(rank.state_gap for rank in ranks), memory_gap=max(memory, default=None),
        peak_bytes=max(rank.peak for rank in ranks), share=max(rank.held for rank in ranks) / max(size, 1),
        buffers=len(truth.buffers), buffer_gap=buffers.get(buffer, 0.0), worst_buffer=buffer,
    )  # fmt: skip
    return replace(judged, why=_why(judged, ranks, truth))


def _why(found: Proof, ranks: list[RankSeen], truth: Truth) -> str:
    if truth.not_finite:
        return f"{truth.not_finite} in one process: nothing can be compared"
    if found.compared < found.trainable:
        return f"only {found.compared} of {found.trainable} gradients were compared"
    if not found.gradient_gap <= found.tolerance:
        return f"the gradient of {found.worst} is {gap_words(found.gradient_gap)}"
    if not found.loss_gap <= found.tolerance:
        return f"losses are {gap_words(found.loss_gap)}"
    settings = next((rank.settings for rank in ranks if rank.settings), "")
    if settings:
        return settings
    if not found.buffer_gap <= found.tolerance:
        return f"the buffer {found.worst_buffer} is {gap_words(found.buffer_gap)} after the last step"
    return next((rank.checkpoint for rank in ranks if rank.checkpoint), "")
