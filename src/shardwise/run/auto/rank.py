"""One rank of a proof: it runs the split program, or the split script, and holds what it has against one process."""

import math
from collections import Counter
from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

import torch
import torch.distributed as dist
from msgspec import Struct
from torch import Tensor, nn

from shardwise.run.auto.draws import draws_begin
from shardwise.run.auto.gaps import FLOORS, MOST, TOLERANCES, Apart, counted
from shardwise.run.auto.kept import joined_beside, split_program
from shardwise.run.auto.live import peak_of
from shardwise.run.auto.loop import Listener, split_listener
from shardwise.run.auto.matrices import whole_matrices
from shardwise.run.auto.memory import foretold_elements, held_elements, state_elements
from shardwise.run.auto.meshes import batch_mesh, mesh_of, shard_place
from shardwise.run.auto.messages import MessageLog, Sent, foretold
from shardwise.run.auto.norms import BY_VALUE, NORM_BYTES
from shardwise.run.auto.plan import AutoPlan
from shardwise.run.auto.program import UserProgram, forward_loss, run_step
from shardwise.run.auto.split import Applied, reshard
from shardwise.run.auto.truth import LOOKED_AT, Truth, finite, saved_buffers, settings_of
from shardwise.run.auto.watch import before_update, part_of, samples_of
from shardwise.run.auto.wide import comparable

COUNTED = 1
"""the step whose messages are counted: in the first one some libraries still set themselves up"""


class RankSeen(Struct):
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


def gap_words(gap: float) -> str:
    return f"{gap:.2g} off" if gap < math.inf else "not finite on a rank, or on one side only"


def rank_seen(program: UserProgram, truth: Truth, plan: AutoPlan) -> RankSeen:
    """One rank of the proof, in a process of its own, where the program's tensors are."""
    degrees, mesh = plan.degrees, mesh_of(plan.degrees, next(program.model.parameters()).device.type)
    plain = program.copy()
    before = dict(plain.model.named_parameters())
    done = split_program(program, plan, mesh)
    seen = RankSeen(checkpoint="" if _kept(done, before) else "the split model's weights differ from the whole one's")
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
        seen.state_gap = _state_gap(done, program.optimizers, plain, truth)
        own = {**own_buffers(done), **joined_beside(done, program)}
        seen.buffers = _buffer_gaps(own, truth.buffers, FLOORS[program.dtype])
        seen.checkpoint = seen.checkpoint or _reloaded(done, plain, truth)
        # gloo's own thread may still hold a message when the next tensor is made: the lesser of two steps
        seen.peak = min(peak_of(program, lambda: made(program.batches[-1])) for _ in range(LOOKED_AT))
    return seen


def loop_rank_seen(program: UserProgram, truth: Truth, plan: AutoPlan) -> RankSeen:
    """One rank of a script that runs from top to bottom, in a process of its own."""
    loop = program.loop
    assert loop is not None
    seen, log, made = RankSeen(), MessageLog(plan), list[Applied]()
    before = dict(program.model.named_parameters())

    def check(model: nn.Module) -> None:
        other = next((n for n, p in model.named_parameters() if n not in before or not torch.equal(p, before[n])), "")
        if other:
            raise ValueError(f"{other} begins with other numbers each time the script is run; seed what draws them")

    def split(done: Applied) -> None:
        made.append(done)
        seen.checkpoint = "" if _kept(done, before) else "the split model's weights differ from the whole one's"
        seen.held = held_elements(done.model.parameters())

    def look(listener: Listener) -> None:
        number = len(seen.gaps)
        reshard(made[0].model)
        if not settings_of(listener.optimizers) <= truth.settings[number]:
            seen.settings = seen.settings or f"an optimizer has other settings at update {number + 1}"
        seen.gaps.append(_compared(made[0], truth.gradients[number], shard_place(plan.degrees, made[0].mesh)))
        seen.losses.append(sum(listener.losses))

    def stepped(listener: Listener) -> None:
        if listener.updates == COUNTED:
            log.__enter__()  # type: ignore[no-untyped-call]
        elif listener.updates == COUNTED + 1:
            log.__exit__(None, None, None)  # type: ignore[no-untyped-call]

    wide = program.dtype == "float64"
    listener = split_listener(plan, len(truth.losses), look, wide=wide, done=split, check=check)
    listener.stepped = stepped
    loop.run(listener)
    done = made[0]
    reshard(done.model)
    whole = len(plan.roots) == 1 or truth.backwards == len(listener.optimizers) == 1
    if listener.updates > COUNTED and not plan.degrees.recompute and whole:
        seen.messages = +log.sent == +_told(done, program, truth, log)
    seen.count = sum(log.sent.values())
    seen.state_gap = _state_gap(done, listener.optimizers, program, truth)
    seen.buffers = _buffer_gaps(own_buffers(done), truth.buffers, FLOORS[program.dtype])
    seen.checkpoint = seen.checkpoint or _joined(done, loop.final, program.dtype)
    return seen


def _joined(done: Applied, final: Mapping[str, Tensor], dtype: str) -> str:
    """What the ranks hold, put together, is what one process has after its last step."""
    whole = {name: done.shares.whole(name, p) for name, p in done.model.named_parameters()}
    gaps = {n: counted(float((whole[n] - x).norm()) / max(float(x.norm()), 1e-300)) for n, x in final.items()}
    name = max(gaps, key=lambda each: gaps[each], default="")
    return "" if not gaps or gaps[name] <= MOST[dtype] else f"a checkpoint holds {name} {gap_words(gaps[name])}"


def _told(done: Applied, plain: UserProgram, truth: Truth, log: MessageLog) -> "Counter[Sent]":
    """Messages of this rank in the step that was counted."""
    degrees = done.plan.degrees
    own = samples_of(plain.batches[COUNTED]) // degrees.dp
    width = torch.finfo(next(plain.model.parameters()).dtype).bits // 8
    stage = 0 if done.stage is None else done.stage.place
    unused = {name for name, gradient in truth.gradients[COUNTED].items() if gradient is None}
    whole = whole_matrices(plain.model, plain.optimizers)
    told = foretold(plain.model, done.plan, own, width, stage, unused, truth.backwards, whole)
    told[Sent(log.alone, "all_reduce", NORM_BYTES)] += sum(
        clip.order != BY_VALUE for clip in truth.clips if degrees.ranks > 1
    )
    return told


def _state_gap(done: Applied, optimizers: list[torch.optim.Optimizer], plain: UserProgram, truth: Truth) -> float:
    stage = 0 if done.stage is None else done.stage.place
    told = foretold_elements(plain.model, done.plan, stage, shard_place(done.plan.degrees, done.mesh)[0])
    held = held_elements(done.model.parameters()) + state_elements(optimizers)
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
        return f"a checkpoint loaded into the plain model gives a loss {gap_words(gap)}"
    return ""
