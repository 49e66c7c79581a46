"""A split held against one process: losses, the gradient of every parameter, messages, and what a checkpoint holds."""

import math
from collections import Counter
from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

import torch
import torch.distributed as dist
from msgspec import Struct
from msgspec.structs import replace
from torch import Tensor

from shardwise.run.auto.blocks import until_backward
from shardwise.run.auto.causes import cause_of
from shardwise.run.auto.context import cannot_share_tokens
from shardwise.run.auto.draws import draws_begin
from shardwise.run.auto.gaps import FLOORS, TOLERANCES, Apart, counted, gradient_gaps, tolerance_of
from shardwise.run.auto.live import foretold_peak, peak_of
from shardwise.run.auto.means import token_means_seen, uneven_labels
from shardwise.run.auto.memory import foretold_elements, held_elements, state_elements
from shardwise.run.auto.meshes import batch_mesh, mesh_of, shard_place
from shardwise.run.auto.messages import MessageLog, Sent, foretold
from shardwise.run.auto.norms import NORM_BYTES
from shardwise.run.auto.plan import AutoPlan, Degrees
from shardwise.run.auto.program import UserProgram, forward_loss, run_step
from shardwise.run.auto.proof import Proof
from shardwise.run.auto.split import Applied, applied
from shardwise.run.auto.stage import cannot_stage
from shardwise.run.auto.truth import LOOKED_AT, Truth, finite, saved_buffers, settings_of
from shardwise.run.auto.understand import understood
from shardwise.run.auto.watch import before_update, part_of, samples_of
from shardwise.run.auto.wide import comparable
from shardwise.run.runtime.train.fork import forked

MOST_WORDS = 400
"""characters of the reason why a split does not run"""
COUNTED = 1
"""the step whose messages are counted: in the first one some libraries still set themselves up"""


def plan_of(program: UserProgram, degrees: Degrees) -> AutoPlan:
    """What can be cut, asked of a copy; nothing of the program is changed."""
    own = program.copy()
    batch = own.batches[0]
    samples = samples_of(batch)
    seen: list[bool] = []

    def run() -> None:
        with comparable(wide=own.dtype == "float64"), until_backward(), token_means_seen(samples) as averaged:
            own.step(*own.parts, batch)
        seen[:] = averaged

    plan = understood(own.model, run, degrees, samples)
    apart = any(seen) or any(uneven_labels(each, samples) for each in own.batches)
    return own.told(replace(plan, token_means=len(seen) if apart else 0))


class _Seen(Struct):
    """What one rank found."""

    losses: list[float] = []
    gaps: list[dict[str, Apart]] = []
    """of every step, by parameter"""
    checkpoint: str = ""
    messages: bool | None = None
    count: int = 0
    held: int = 0
    state_gap: float = 0.0
    peak: int = 0
    buffers: dict[str, float] = {}
    """gaps of those that this rank would save"""
    settings: str = ""
    """empty, or the update at which an optimizer has other settings"""


def proven(program: UserProgram, plan: AutoPlan, truth: Truth) -> Proof:
    """Runs it on gloo ranks of this machine."""
    model, degrees = program.model, plan.degrees
    trainable = [name for name, p in model.named_parameters() if p.requires_grad]
    steps, tolerance = len(program.batches) - 1, TOLERANCES[program.dtype]
    proof = Proof(plan=degrees.text, ranks=degrees.ranks, steps=steps, dtype=program.dtype, tolerance=tolerance,
                  trainable=len(trainable))  # fmt: skip
    why = _cannot(program, plan, truth)
    if why:
        return replace(proof, why=why)
    try:
        ranks = forked(degrees.ranks, lambda _: _rank(program.copy(), plan, truth))
    except RuntimeError as error:
        return replace(proof, why=f"it does not run: {str(error).strip().splitlines()[-1][:MOST_WORDS]}")
    judged = _judged(proof, ranks, program, truth, _foretold_peaks(program, plan, truth))
    if judged.why and not truth.not_finite:
        allowed = tolerance_of(program, truth, max(judged.gradient_gap, judged.loss_gap))
        judged = replace(judged, tolerance=allowed)
        judged = replace(judged, why=_why(judged, ranks, truth))
    cause = cause_of(program, degrees, tolerance) if judged.why and not truth.not_finite else ""
    return replace(judged, why=f"{judged.why}: {cause}") if cause else judged


def _foretold_peaks(program: UserProgram, plan: AutoPlan, truth: Truth) -> list[int]:
    """Of every rank; none where a rank does not run alone: what it would have received may be any number."""
    try:
        ranks = range(plan.degrees.ranks)
        return [foretold_peak(program, plan, truth.clips, rank, truth.choices) for rank in ranks]
    except (RuntimeError, ValueError, IndexError):
        return []


def _cannot(program: UserProgram, plan: AutoPlan, truth: Truth) -> str:
    samples, parts = samples_of(program.batches[0]), plan.degrees.dp * plan.degrees.micro_batches
    if samples % parts:
        return f"{samples} samples are not shared evenly by {parts}"
    if plan.degrees.pp > 1 and truth.backwards > 1:
        return f"the step calls backward {truth.backwards} times: stages run one, and make micro-batches themselves"
    if plan.degrees.pp > 1 and truth.side_effects:
        return (
            f"{truth.side_effects[0]}, is not part of training the model: stages run what is before backward for every "
            "micro-batch, and of what is after it only clip_grad_norm_, optimizers, schedulers and zero_grad"
        )
    return refused(plan)


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


def _judged(proof: Proof, ranks: list[_Seen], program: UserProgram, truth: Truth, peaks: list[int]) -> Proof:
    trained = {name: p.numel() for name, p in program.model.named_parameters() if p.requires_grad}
    steps = [gradient_gaps([rank.gaps[number] for rank in ranks], truth.gradients[number], trained, FLOORS[proof.dtype])
             for number in range(proof.steps)]  # fmt: skip
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


def _why(found: Proof, ranks: list[_Seen], truth: Truth) -> str:
    if truth.not_finite:
        return f"{truth.not_finite} in one process: nothing can be compared"
    if found.compared < found.trainable:
        return f"only {found.compared} of {found.trainable} gradients were compared"
    if not found.gradient_gap <= found.tolerance:
        return f"the gradient of {found.worst} is {_words(found.gradient_gap)}"
    if not found.loss_gap <= found.tolerance:
        return f"losses are {_words(found.loss_gap)}"
    settings = next((rank.settings for rank in ranks if rank.settings), "")
    if settings:
        return settings
    if not found.buffer_gap <= found.tolerance:
        return f"the buffer {found.worst_buffer} is {_words(found.buffer_gap)} after the last step"
    return next((rank.checkpoint for rank in ranks if rank.checkpoint), "")


def _words(gap: float) -> str:
    return f"{gap:.2g} off" if gap < math.inf else "not finite on a rank, or on one side only"


def _rank(program: UserProgram, plan: AutoPlan, truth: Truth) -> _Seen:
    """One rank of the proof, in a process of its own."""
    degrees, mesh = plan.degrees, mesh_of(plan.degrees, "cpu")
    plain = program.copy()
    before = dict(plain.model.named_parameters())
    done = applied(program.model, plan, mesh)
    for optimizer in program.optimizers:
        done.rebind(optimizer)
    seen = _Seen(checkpoint="" if _kept(done, before) else "the split model's weights differ from the whole one's")
    seen.held = held_elements(program.model.parameters())
    log, place = MessageLog(plan), batch_mesh(mesh).get_local_rank() if degrees.dp > 1 else 0

    shard = shard_place(degrees, mesh)

    def look() -> None:
        number = len(seen.gaps)
        if not settings_of(program.optimizers) <= truth.settings[number]:
            seen.settings = seen.settings or f"an optimizer has other settings at update {number + 1}" + (
                ": with stages, code before backward runs for every micro-batch" if degrees.pp > 1 else ""
            )
        seen.gaps.append(_compared(done, truth.gradients[number], shard))

    def made(batch: Any) -> float | None:
        return run_step(done, program, part_of(batch, place, degrees.dp), truth.clips)

    with draws_begin(), comparable(wide=program.dtype == "float64"):
        for number, batch in enumerate(program.batches[:-1]):
            with before_update(look), log if number == COUNTED else nullcontext():
                found = made(batch)
            seen.losses += [] if found is None else [found]
        # how much of a block runs again depends on what its last products keep: not foretold
        if len(program.batches) - 1 > COUNTED and not degrees.recompute:
            seen.messages = +log.sent == +_told(done, plain, truth, log)
        seen.count = sum(log.sent.values())
        seen.state_gap = _state_gap(done, program, plain, truth)
        seen.buffers = _buffer_gaps(own_buffers(done), truth.buffers, FLOORS[program.dtype])
        seen.checkpoint = seen.checkpoint or _reloaded(done, plain, truth)
        # gloo's own thread may still hold a message when the next tensor is made: the lesser of two steps
        seen.peak = min(peak_of(program, lambda: made(program.batches[-1])) for _ in range(LOOKED_AT))
    return seen


def _told(done: Applied, plain: UserProgram, truth: Truth, log: MessageLog) -> "Counter[Sent]":
    """Messages of this rank in the step that was counted."""
    degrees = done.plan.degrees
    own = samples_of(plain.batches[COUNTED]) // degrees.dp
    width = torch.finfo(next(plain.model.parameters()).dtype).bits // 8
    stage = 0 if done.stage is None else done.stage.place
    unused = {name for name, gradient in truth.gradients[COUNTED].items() if gradient is None}
    told = foretold(plain.model, done.plan, own, width, stage, unused, truth.backwards)
    told[Sent(log.alone, "all_reduce", NORM_BYTES)] += len(truth.clips) if degrees.ranks > 1 else 0
    return told


def _state_gap(done: Applied, program: UserProgram, plain: UserProgram, truth: Truth) -> float:
    stage = 0 if done.stage is None else done.stage.place
    told = foretold_elements(plain.model, done.plan, stage, shard_place(done.plan.degrees, done.mesh)[0])
    held = held_elements(program.model.parameters()) + state_elements(program.optimizers)
    return abs(told * (1 + truth.moments) / held - 1) if held else 0.0


def _kept(done: Applied, before: Mapping[str, Tensor]) -> bool:
    """Bit for bit, put together again."""
    same = [torch.equal(done.shares.whole(n, p), before[n]) for n, p in done.model.named_parameters()]
    return all(same)


def _compared(done: Applied, truth: dict[str, Tensor | None], shard: tuple[int, int]) -> dict[str, Apart]:
    """This rank's part of the gradient of every parameter it holds, beside the same part of one process's. `shard`:
    its place among those that FSDP2 shards over, and how many they are."""
    gaps: dict[str, Apart] = {}
    for name, parameter in done.model.named_parameters():
        if not parameter.requires_grad:
            continue
        wanted, found = truth[name], parameter.grad
        if wanted is None or found is None:
            rest = _local(found if wanted is None else wanted) if (found is not None or wanted is not None) else None
            whole = math.inf if rest is not None and float(rest.norm()) else 0.0
            gaps[name] = Apart(whole, math.inf)
        else:
            local = _local(found)
            part = done.shares.own(name, wanted, shard if hasattr(found, "to_local") else None)
            gap = float((local - part).square().sum()) if local.shape == part.shape else math.inf
            gaps[name] = Apart(gap, local.numel())
    return gaps


def _local(x: Any) -> Tensor:
    found: Tensor = x.to_local() if hasattr(x, "to_local") else x
    return found


def own_buffers(done: Applied) -> dict[str, Tensor]:
    """Those that this rank would save: with stages, those of its blocks, and outside the blocks those of the stage
    that runs their module on what it is meant for."""
    buffers = saved_buffers(done.model)
    if done.stage is None:
        return buffers
    plan, place = done.plan, done.stage.place
    blocks, own = tuple(f"{name}." for name in plan.order), tuple(f"{name}." for name in plan.own(place))
    early = {end.parameter.rpartition(".")[0] for end in plan.ends if end.first and not end.last}
    first, last = 0 in plan.held[place], len(plan.stages) - 1 in plan.held[place]
    return {
        name: buffer for name, buffer in buffers.items()
        if (name.startswith(own) if name.startswith(blocks) else first if name.rpartition(".")[0] in early else last)
    }  # fmt: skip


def _buffer_gaps(own: Mapping[str, Tensor], truth: Mapping[str, Tensor], floor: float) -> dict[str, float]:
    norms = {name: float(x.double().norm()) for name, x in truth.items()}
    least = max(floor * max(norms.values(), default=0.0), 1e-300)
    return {
        name: counted(float((own[name].double() - x.double()).norm()) / max(norms[name], least))
        if own[name].shape == x.shape else math.inf
        for name, x in truth.items() if name in own
    }  # fmt: skip


def _reloaded(done: Applied, plain: UserProgram, truth: Truth) -> str:
    """What the ranks hold, loaded into a plain model, gives the loss of one process."""
    state = {name: done.shares.whole(name, p) for name, p in done.model.named_parameters()}
    state |= {name: buffer.clone() for name, buffer in own_buffers(done).items()}
    if done.stage is not None:
        parts: list[Any] = [None] * done.plan.degrees.pp
        dist.all_gather_object(parts, state, group=done.mesh["pp"].get_group())
        state = {name: tensor for part in parts for name, tensor in part.items()}
    if dist.get_rank():
        return ""
    wrong = next((name for name, tensor in state.items() if not finite(tensor)), "")
    if wrong:
        return f"a checkpoint holds numbers of {wrong} that are not finite"
    for name, tensor in (*plain.model.named_parameters(), *saved_buffers(plain.model).items()):
        if tensor.shape != state[name].shape:
            return f"a checkpoint holds {name} in another shape"
        tensor.data.copy_(state[name])
    with draws_begin():
        found = forward_loss(plain, plain.batches[-1])
    gap = counted(abs(found - truth.last) / max(abs(truth.last), 1e-300))
    if not gap <= 10 * TOLERANCES[plain.dtype]:
        return f"a checkpoint loaded into the plain model gives a loss {_words(gap)}"
    return ""
