"""One pipeline stage of a user's model: the whole outer code runs, blocks of other stages are passed by.

Masks, rotary angles and conditions are so computed by the user's own code on every stage. A stage's first block takes
what was received, and the code is left behind its last block. A schedule file says what runs next.
"""

from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh

from shardwise.auto.blocks import until_backward
from shardwise.auto.plan import AutoPlan
from shardwise.auto.watch import part_of
from shardwise.schedules import schedules

SCHEDULE = "1f1b"


class StageEnd(BaseException):
    """Thrown behind the last block of a stage: what the next stage takes."""

    def __init__(self, output: Tensor) -> None:
        super().__init__()
        self.output = output


@dataclass
class Flight:
    """A micro-batch between its forward and its backward."""

    into: Tensor | None
    out: Tensor


@dataclass
class SplitStage:
    """This rank's blocks, and the neighbours that blocks before and behind them belong to."""

    model: nn.Module
    plan: AutoPlan
    mesh: DeviceMesh
    place: int
    actions: Sequence[tuple[str, int]]
    """F or B, and of which micro-batch, in order"""
    forms: dict[str, Tensor]
    """parameters outside the blocks, of all stages, as this rank's share of them, without values"""
    ends: dict[str, nn.Parameter] = field(default_factory=dict)
    """those of them that this stage holds"""
    into: Tensor | None = None
    sent: list[tuple[Any, Tensor]] = field(default_factory=list)

    @property
    def last(self) -> bool:
        return self.place == self.plan.degrees.pp - 1

    def peer(self, step: int) -> int:
        """The rank of the world that holds the same share of the next stage, or of the one before."""
        ranks: list[int] = dist.get_process_group_ranks(self.mesh["pp"].get_group())
        return ranks[self.place + step]

    def run(self, step: Callable[..., object], parts: tuple[Any, ...], batch: Any) -> list[float]:
        """Forwards and backwards of one training step; losses of the micro-batches, on the last stage."""
        count = self.plan.degrees.micro_batches
        flights: dict[int, Flight] = {}
        losses: list[float] = []
        for kind, number in self.actions:
            if kind == "F":
                flights[number] = self._forward(step, parts, part_of(batch, number, count))
                if self.last:
                    losses.append(float(flights[number].out.detach()))
            else:
                self._backward(flights.pop(number), count)
        for work, _ in self.sent:
            work.wait()
        self.sent.clear()
        return losses

    def _forward(self, step: Callable[..., object], parts: tuple[Any, ...], batch: Any) -> Flight:
        self.into = None
        try:
            with until_backward() as losses:
                step(*parts, batch)
        except StageEnd as end:
            self._send(end.output.detach(), 1)
            return Flight(self.into, end.output)
        return Flight(self.into, losses[0])

    def _backward(self, flight: Flight, count: int) -> None:
        if self.last:
            torch.autograd.backward(flight.out / count)
        else:
            torch.autograd.backward(flight.out, self._receive(flight.out, 1))
        if flight.into is not None:
            assert flight.into.grad is not None
            self._send(flight.into.grad, -1)

    def take(self, like: Tensor) -> Tensor:
        """What the stage before has sent, in place of what was passed by."""
        self.into = self._receive(like, -1).requires_grad_()
        return self.into

    def _send(self, x: Tensor, step: int) -> None:
        x = x.contiguous()
        self.sent.append((dist.isend(x, self.peer(step), group=self.mesh["pp"].get_group()), x))

    def _receive(self, like: Tensor, step: int) -> Tensor:
        into = torch.empty_like(like, memory_format=torch.contiguous_format, requires_grad=False)
        dist.recv(into, self.peer(step), group=self.mesh["pp"].get_group())
        return into

    def sum_ends(self) -> None:
        """Behind the last backward: what a stage knows of a gradient is a part of it."""
        ranks = self.plan.degrees.dp
        for end in self.plan.ends:
            parameter, form = self.ends.get(end.parameter), self.forms[end.parameter]
            if form.requires_grad and stages_with(self.plan, end.parameter) > 1:
                self._sum_over_stages(parameter, form)
            if ranks > 1 and parameter is not None and parameter.grad is not None:
                dist.all_reduce(parameter.grad, group=self.mesh["dp"].get_group())
                parameter.grad /= ranks

    def _sum_over_stages(self, parameter: nn.Parameter | None, like: Tensor) -> None:
        grad = None if parameter is None else parameter.grad
        # a stage between those that hold a shared table passes zeros on
        total = torch.zeros(like.shape, dtype=like.dtype, device=self.mesh.device_type) if grad is None else grad
        dist.all_reduce(total, group=self.mesh["pp"].get_group())
        if parameter is not None:
            parameter.grad = total


def stages_with(plan: AutoPlan, name: str) -> int:
    """How many stages hold the parameter."""
    pp = plan.degrees.pp
    return next((sum(e.needed(stage, pp) for stage in range(pp)) for e in plan.ends if e.parameter == name), 1)


def staged(
    model: nn.Module, plan: AutoPlan, mesh: DeviceMesh, actions: Sequence[tuple[str, int]], words: Container[str]
) -> SplitStage:
    """The model changed so that this rank's stage runs its own blocks only. `words`: parameters of which ranks hold
    equal shares of the rows."""
    parts = {end.parameter: plan.degrees.tp if end.parameter in words else 1 for end in plan.ends}
    forms = {name: _form(model.get_parameter(name), count) for name, count in parts.items()}
    stage = SplitStage(model, plan, mesh, mesh["pp"].get_local_rank(), actions, forms)
    own = plan.stages[stage.place]
    returns = {name: kind.returns for kind in plan.kinds for name in kind.blocks}
    for name in plan.order:
        block = model.get_submodule(name)
        if name not in own:
            for module in block.modules():
                module._parameters = dict.fromkeys(module._parameters)
            block.forward = _passed_by(returns[name])
    _drop_ends(model, plan, stage.place)
    return stage


def ends_of(model: nn.Module, blocks: Sequence[str]) -> dict[str, nn.Parameter]:
    """Parameters outside the blocks."""
    inside = {id(p) for name in blocks for p in model.get_submodule(name).parameters()}
    return {name: p for name, p in model.named_parameters() if id(p) not in inside}


def _form(parameter: nn.Parameter, parts: int) -> Tensor:
    shape = (parameter.shape[0] // parts, *parameter.shape[1:]) if parts > 1 else parameter.shape
    return torch.empty(shape, dtype=parameter.dtype, device="meta", requires_grad=parameter.requires_grad)


def _drop_ends(model: nn.Module, plan: AutoPlan, place: int) -> None:
    """Tables and heads that other stages hold; a table that is asked behind the first stage answers zeros, which are
    passed by."""
    gone = {id(model.get_parameter(end.parameter)) for end in plan.ends if not end.needed(place, plan.degrees.pp)}
    early = {id(model.get_parameter(end.parameter)) for end in plan.ends if end.first and place > 0}
    for module in model.modules():
        for name, parameter in module._parameters.items():
            if parameter is not None and id(parameter) in early and isinstance(module, nn.Embedding):
                module.forward = _zeros(module.embedding_dim, parameter.dtype)  # type: ignore[method-assign]
            if parameter is not None and id(parameter) in gone:
                module._parameters[name] = None


def _zeros(width: int, dtype: torch.dtype) -> Callable[..., Tensor]:
    return lambda words, *_, **__: torch.zeros(*words.shape, width, dtype=dtype, device=words.device)


def connect(stage: SplitStage) -> None:
    """The first block takes what is received, before FSDP2 sees it; the last one ends the code, behind FSDP2."""
    own = stage.plan.stages[stage.place]
    if stage.place > 0:
        stage.model.get_submodule(own[0]).register_forward_pre_hook(_taking(stage), with_kwargs=True, prepend=True)
    if not stage.last:
        stage.model.get_submodule(own[-1]).register_forward_hook(_leaving)


def _passed_by(returns: int) -> Callable[..., Any]:
    def forward(*args: Any, **kwargs: Any) -> Any:
        x = next(each for each in (*args, *kwargs.values()) if isinstance(each, Tensor))
        return x if not returns else (x, *[None] * (returns - 1))

    return forward


def _taking(stage: SplitStage) -> Callable[..., Any]:
    def hook(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        for place, value in enumerate(args):
            if isinstance(value, Tensor):
                return (*args[:place], stage.take(value), *args[place + 1 :]), kwargs
        name = next(key for key, value in kwargs.items() if isinstance(value, Tensor))
        return args, {**kwargs, name: stage.take(kwargs[name])}

    return hook


def _leaving(_: nn.Module, __: tuple[Any, ...], output: Any) -> None:
    raise StageEnd(output if isinstance(output, Tensor) else output[0])


def actions_of(plan: AutoPlan) -> list[list[tuple[str, int]]]:
    """What every stage does, as the schedule's file says."""
    orders = schedules()[SCHEDULE].order(plan.degrees.pp, 1, plan.degrees.micro_batches)
    return [[(each.kind, each.micro_batch) for each in order] for order in orders]


def cannot_stage(plan: AutoPlan) -> str:
    """Empty, or why the blocks are not a chain."""
    holders = {name.rpartition(".")[0] for name in plan.order}
    if len(holders) > 1:
        return f"{len(holders)} stacks of blocks ({', '.join(sorted(holders))}): stages are those of one"
    if len(set(plan.order)) != len(plan.order) or set(plan.order) != set(plan.blocks):
        return "blocks are called more than once, or not at all"
    if any(kind.returns < 0 for kind in plan.kinds):
        return "a block returns neither a tensor nor values that begin with one"
    if len(plan.order) < plan.degrees.pp:
        return f"{len(plan.order)} blocks for {plan.degrees.pp} stages"
    return ""
