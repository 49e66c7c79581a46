"""A split held against one process: losses, the gradient of every parameter, messages, and what a checkpoint holds."""

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from msgspec import Struct
from msgspec.structs import replace
from torch import Tensor, nn

from shardwise.auto.blocks import until_backward
from shardwise.auto.context import cannot_share_tokens
from shardwise.auto.memory import foretold_elements, held_elements, state_elements
from shardwise.auto.messages import MessageLog, Sent, foretold
from shardwise.auto.norms import NORM_BYTES, Clip, clip_whole, clipping
from shardwise.auto.plan import AutoPlan, Degrees
from shardwise.auto.proof import Proof
from shardwise.auto.split import Applied, applied, mesh_of, sharding_mesh
from shardwise.auto.stage import cannot_stage
from shardwise.auto.understand import understood
from shardwise.auto.watch import before_update, losses_of, part_of, samples_of
from shardwise.auto.wide import comparable, widened
from shardwise.runtime.train.fork import forked

TOLERANCES = {"float64": 1e-9, "float32": 1e-5}
FLOORS = {"float64": 1e-6, "float32": 1e-2}
"""gradients below this share of all of them are held against it: a bias that softmax cancels has only rounding in it"""
Step = Callable[..., object]


@dataclass
class UserProgram:
    """A user's training program: what `build` gave, the step, and the batches of so many steps."""

    parts: tuple[Any, ...]
    step: Step
    batches: list[Any]
    dtype: str = "float64"

    @property
    def model(self) -> nn.Module:
        return next(part for part in self.parts if isinstance(part, nn.Module))

    @property
    def optimizers(self) -> list[torch.optim.Optimizer]:
        return [part for part in self.parts if isinstance(part, torch.optim.Optimizer)]

    def copy(self) -> "UserProgram":
        return UserProgram(copy.deepcopy(self.parts), self.step, self.batches, self.dtype)


@dataclass
class Truth:
    """One process: losses, gradients step by step, and the loss of a further batch behind the last step."""

    losses: list[float]
    gradients: list[dict[str, Tensor | None]]
    last: float
    clips: list[Clip]
    """what one step asked of `clip_grad_norm_`"""
    moments: float = 0.0
    """numbers that optimizers keep for one of a parameter"""


def program_of(build: Step, batch: Callable[[], Any], step: Step, steps: int, dtype: str) -> UserProgram:
    torch.manual_seed(0)
    built = build()
    parts = built if isinstance(built, tuple) else (built,)
    program = UserProgram(parts, step, [batch() for _ in range(steps + 1)], dtype)
    if dtype == "float64":
        program.model.double()
        program.batches = widened(program.batches)
    return program


def truth_of(program: UserProgram) -> Truth:
    own = program.copy()
    found = Truth([], [], 0.0, [])

    def look() -> None:
        found.gradients.append(
            {n: None if p.grad is None else p.grad.detach().clone() for n, p in own.model.named_parameters()}
        )

    plain = torch.nn.utils.clip_grad_norm_

    def clipped(parameters: Any, clip: Clip) -> Any:
        found.clips.append(clip)
        return plain(parameters, clip.most, clip.order)

    with comparable(wide=own.dtype == "float64"), before_update(look), clipping(clipped):
        for batch in own.batches[:-1]:
            found.clips.clear()
            with losses_of() as losses:
                own.step(*own.parts, batch)
            found.losses.append(sum(losses))
        if len(found.gradients) != len(found.losses):
            raise ValueError(
                f"step: it made {len(found.gradients)} optimizer steps in {len(found.losses)}; write one a step"
            )
        found.last = forward_loss(own, own.batches[-1])
    found.moments = state_elements(own.optimizers) / max(held_elements(own.model.parameters()), 1)
    return found


def forward_loss(program: UserProgram, batch: Any) -> float:
    with until_backward() as losses:
        program.step(*program.parts, batch)
    return float(losses[0].detach()) if losses else 0.0


def plan_of(program: UserProgram, degrees: Degrees) -> AutoPlan:
    """What can be cut, asked of a copy; nothing of the program is changed."""
    own = program.copy()
    batch = own.batches[0]

    def run() -> None:
        with comparable(wide=own.dtype == "float64"), until_backward():
            own.step(*own.parts, batch)

    return understood(own.model, run, degrees, samples_of(batch))


class _Seen(Struct):
    """What one rank found."""

    losses: list[float]
    gaps: dict[str, float]
    checkpoint: str
    messages: bool | None
    count: int
    held: int
    memory_gap: float


def proven(program: UserProgram, plan: AutoPlan, truth: Truth) -> Proof:
    """Runs it on gloo ranks of this machine."""
    model, degrees = program.model, plan.degrees
    trainable = [name for name, p in model.named_parameters() if p.requires_grad]
    steps, tolerance = len(program.batches) - 1, TOLERANCES[program.dtype]
    proof = Proof(plan=degrees.text, ranks=degrees.ranks, steps=steps, dtype=program.dtype, tolerance=tolerance,
                  trainable=len(trainable))  # fmt: skip
    why = _cannot(program, plan)
    if why:
        return replace(proof, why=why)
    try:
        ranks = forked(degrees.ranks, lambda _: _rank(program.copy(), plan, truth))
    except RuntimeError as error:
        return replace(proof, why=f"it does not run: {str(error).strip().splitlines()[-1][:200]}")
    return _judged(proof, ranks, program, truth)


def _cannot(program: UserProgram, plan: AutoPlan) -> str:
    samples, parts = samples_of(program.batches[0]), plan.degrees.dp * plan.degrees.micro_batches
    if samples % parts:
        return f"{samples} samples are not shared evenly by {parts}"
    return refused(plan)


def refused(plan: AutoPlan) -> str:
    """Empty, or why the plan is not carried out as it stands."""
    degrees = plan.degrees
    if not plan.kinds:
        return "no module repeats"
    if degrees.tp > 1 and not any(kind.cuts for kind in plan.kinds):
        return (
            f"no product of the blocks can be cut: {plan.all_refusals[0].why}"
            if plan.all_refusals
            else "nothing is cut"
        )
    if degrees.pp > 1 and degrees.cp > 1:
        return "stages of a shared sequence are not made"
    return (cannot_stage(plan) if degrees.pp > 1 else "") or (cannot_share_tokens(plan) if degrees.cp > 1 else "")


def _judged(proof: Proof, ranks: list[_Seen], program: UserProgram, truth: Truth) -> Proof:
    gaps: dict[str, float] = {}
    for rank in ranks:
        for name, gap in rank.gaps.items():
            gaps[name] = max(gap, gaps.get(name, 0.0))
    told = [rank.losses for rank in ranks if rank.losses]
    losses = [sum(each) / len(told) for each in zip(*told, strict=True)]
    loss_gap = max(abs(a - b) / max(abs(b), 1e-30) for a, b in zip(losses, truth.losses, strict=True))
    worst = max(gaps, key=lambda name: gaps[name], default="")
    size = sum(p.numel() for p in program.model.parameters())
    foretold_ones = [rank.messages for rank in ranks if rank.messages is not None]
    found = replace(
        proof, loss_gap=loss_gap, gradient_gap=gaps.get(worst, 0.0), worst=worst, compared=len(gaps),
        checkpoint_equal=not any(rank.checkpoint for rank in ranks), messages=ranks[0].count,
        messages_equal=all(foretold_ones) if foretold_ones else None,
        memory_gap=max(rank.memory_gap for rank in ranks), share=max(rank.held for rank in ranks) / max(size, 1),
    )  # fmt: skip
    return replace(found, why=_why(found, ranks))


def _why(found: Proof, ranks: list[_Seen]) -> str:
    if found.compared < found.trainable:
        return f"only {found.compared} of {found.trainable} gradients were compared"
    if not found.gradient_gap <= found.tolerance:
        return f"the gradient of {found.worst} is {found.gradient_gap:.2g} off"
    if not found.loss_gap <= found.tolerance:
        return f"losses are {found.loss_gap:.2g} off"
    return next((rank.checkpoint for rank in ranks if rank.checkpoint), "")


def _rank(program: UserProgram, plan: AutoPlan, truth: Truth) -> _Seen:
    """One rank of the proof, in a process of its own."""
    degrees, mesh = plan.degrees, mesh_of(plan.degrees, "cpu")
    plain = program.copy()
    before = dict(plain.model.named_parameters())
    done = applied(program.model, plan, mesh)
    for optimizer in program.optimizers:
        done.rebind(optimizer)
    kept = _kept(done, before)
    seen = _Seen([], {}, "" if kept else "the split model does not hold what the whole one held", None, 0, 0, 0.0)
    seen.held = held_elements(program.model.parameters())
    log, place = MessageLog(plan), mesh["dp"].get_local_rank() if degrees.dp > 1 else 0
    number = 0

    def look() -> None:
        _compare(done, truth.gradients[number], seen.gaps, FLOORS[program.dtype])

    with comparable(wide=program.dtype == "float64"):
        for number, batch in enumerate(program.batches[:-1]):
            with before_update(look) if number != 1 else log:
                found = run_step(done, program, part_of(batch, place, degrees.dp), truth.clips)
            seen.losses += [] if found is None else [found]
        # how much of a block runs again depends on what its last products keep: not foretold
        if len(program.batches) > 2 and not degrees.recompute:
            own = samples_of(program.batches[1]) // degrees.dp
            width = torch.finfo(next(plain.model.parameters()).dtype).bits // 8
            stage = 0 if done.stage is None else done.stage.place
            unused = {name for name, gradient in truth.gradients[1].items() if gradient is None}
            told = foretold(plain.model, plan, own, width, stage, unused)
            told[Sent(log.alone, "all_reduce", NORM_BYTES)] += len(truth.clips) if degrees.ranks > 1 else 0
            seen.messages = +log.sent == +told
        seen.count = sum(log.sent.values())
        seen.memory_gap = _memory_gap(done, program, plain, truth)
        seen.checkpoint = seen.checkpoint or _reloaded(done, plain, truth)
    return seen


def run_step(done: Applied, program: UserProgram, batch: Any, clips: list[Clip]) -> float | None:
    """One training step of this rank; its loss, where this rank sees one."""
    if done.stage is None:
        with losses_of() as losses, clipping(lambda _, clip: clip_whole(done, clip)):
            program.step(*program.parts, batch)
        return sum(losses)
    found = done.stage.run(program.step, program.parts, batch)
    done.sum_ends()
    for clip in clips:
        clip_whole(done, clip)
    for part in program.parts:
        if isinstance(part, torch.optim.Optimizer | torch.optim.lr_scheduler.LRScheduler):
            part.step()
    done.model.zero_grad()
    return sum(found) / len(found) if found else None


def _memory_gap(done: Applied, program: UserProgram, plain: UserProgram, truth: Truth) -> float:
    over, stage = sharding_mesh(done.plan.degrees, done.mesh), 0 if done.stage is None else done.stage.place
    told = foretold_elements(plain.model, done.plan, stage, 0 if over is None else over.get_local_rank())
    held = held_elements(program.model.parameters()) + state_elements(program.optimizers)
    return abs(told * (1 + truth.moments) / held - 1) if held else 0.0


def _kept(done: Applied, before: Mapping[str, Tensor]) -> bool:
    """Bit for bit, put together again."""
    same = [torch.equal(done.shares.whole(n, p), before[n]) for n, p in done.model.named_parameters()]
    return all(same)


def _compare(done: Applied, truth: dict[str, Tensor | None], gaps: dict[str, float], floor: float) -> None:
    norms = [float(g.norm()) for g in truth.values() if g is not None]
    least = floor * max(norms, default=0.0)
    for name, parameter in done.model.named_parameters():
        wanted = truth[name]
        if not parameter.requires_grad:
            continue
        if parameter.grad is None or wanted is None:
            rest = parameter.grad if wanted is None else wanted
            gap = 0.0 if rest is None or not float(_local(rest).norm()) else float("inf")
        else:
            found = done.shares.whole(name, parameter.grad)
            gap = float((found - wanted).norm()) / max(float(wanted.norm()), least, 1e-300)
        gaps[name] = max(gap, gaps.get(name, 0.0))


def _local(x: Any) -> Tensor:
    found: Tensor = x.to_local() if hasattr(x, "to_local") else x
    return found


def _reloaded(done: Applied, plain: UserProgram, truth: Truth) -> str:
    """What the ranks hold, loaded into a plain model, gives the loss of one process."""
    state = {name: done.shares.whole(name, p) for name, p in done.model.named_parameters()}
    if done.stage is not None:
        parts: list[Any] = [None] * done.plan.degrees.pp
        dist.all_gather_object(parts, state, group=done.mesh["pp"].get_group())
        state = {name: tensor for part in parts for name, tensor in part.items()}
    if dist.get_rank():
        return ""
    for name, parameter in plain.model.named_parameters():
        parameter.data.copy_(state[name])
    found = forward_loss(plain, plain.batches[-1])
    if abs(found - truth.last) > 10 * TOLERANCES[plain.dtype] * abs(truth.last):
        return f"a checkpoint loaded into the plain model gives a loss {abs(found / truth.last - 1):.2g} off"
    return ""
