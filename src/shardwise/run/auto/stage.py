"""Pipeline stages of a user's model on one rank: the whole outer code runs, blocks of other stages are passed by.

Masks, rotary angles and conditions are so computed by the user's own code on every stage. A stage's first block takes
what was received, and the code is left behind its last block. A schedule file says what runs next; a rank may hold
several stages, of which one runs at a time.
"""

from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh

from shardwise.plugins.schedules import schedules
from shardwise.run.auto.blocks import until_backward
from shardwise.run.auto.draws import DrawsOfAll, generators
from shardwise.run.auto.effects import gradients_kept
from shardwise.run.auto.halves import Owed, input_half, weight_half
from shardwise.run.auto.meshes import batch_mesh
from shardwise.run.auto.plan import AutoPlan
from shardwise.run.auto.watch import part_of, samples_of

Orders = Sequence[Sequence[tuple[str, int, int]]]
"""of every rank of the pipeline: F, B, I or W, of which micro-batch, of which of its chunks"""
Key = tuple[str, int, int]
"""a message: F or B, the stage that takes it, the micro-batch"""


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
    """This rank's blocks, and the ranks that blocks before and behind them belong to."""

    model: nn.Module
    plan: AutoPlan
    mesh: DeviceMesh
    place: int
    orders: Orders
    forms: dict[str, Tensor]
    """parameters outside the blocks, of all stages, as this rank's share of them, without values"""
    ends: dict[str, nn.Parameter] = field(default_factory=dict)
    """those of them that this rank holds"""
    now: tuple[int, int] = (0, 0)
    """the stage and the micro-batch that run"""
    into: Tensor | None = None
    sent: list[tuple[Any, Tensor]] = field(default_factory=list)
    here: dict[Key, Tensor] = field(default_factory=dict)
    """what has come before it was needed, or was made on this rank"""
    due: dict[int, list[Key]] = field(default_factory=dict)
    """what is still to come from each rank in this step: messages of two ranks arrive in the order they were sent"""

    @property
    def final(self) -> int:
        return len(self.plan.stages) - 1

    def run(self, step: Callable[..., object], parts: tuple[Any, ...], batch: Any) -> list[float]:
        """Forwards and backwards of one training step; losses of the micro-batches, where the last stage is."""
        count = self.plan.degrees.micro_batches
        routes = routes_of(self.plan.held, self.orders)
        self.due = {sender: list(keys) for (sender, receiver), keys in routes.items() if receiver == self.place}
        flights: dict[tuple[int, int], Flight] = {}
        owed: dict[tuple[int, int], Owed] = {}
        losses: list[float] = []
        drawing = generators(self.mesh.device_type)
        begin = [each.get_rng_state() for each in drawing]
        for kind, number, chunk in self.orders[self.place]:
            self.now = self.plan.held[self.place][chunk], number
            if kind == "F":
                for each, state in zip(drawing, begin, strict=True):  # every stage draws what one process draws
                    each.set_rng_state(state)
                flights[self.now] = self._forward(step, parts, part_of(batch, number, count))
                if self.now[0] == self.final:
                    losses.append(float(flights[self.now].out.detach()))
            elif kind == "B":
                self._backward(flights.pop(self.now), count)
            elif kind == "I":
                owed[self.now] = self._inputs(flights.pop(self.now), count)
            else:
                weight_half(self.model, owed.pop(self.now))
        for work, _ in self.sent:
            work.wait()
        self.sent.clear()
        return losses

    def _forward(self, step: Callable[..., object], parts: tuple[Any, ...], batch: Any) -> Flight:
        self.into = None
        ranks, count, place = (
            self.plan.degrees.dp,
            self.plan.degrees.micro_batches,
            batch_mesh(self.mesh).get_local_rank(),
        )
        drawn = DrawsOfAll(place * count + self.now[1], ranks * count, samples_of(batch))
        try:
            with until_backward() as losses, gradients_kept(), drawn:
                step(*parts, batch)
        except StageEnd as end:
            self._give("F", self.now[0] + 1, end.output.detach())
            return Flight(self.into, end.output)
        return Flight(self.into, losses[0])

    def _backward(self, flight: Flight, count: int) -> None:
        if self.now[0] == self.final:
            torch.autograd.backward(flight.out / count)
        else:
            torch.autograd.backward(flight.out, self._taken("B", flight.out))
        self._give_back(flight.into)

    def _inputs(self, flight: Flight, count: int) -> Owed:
        """The gradient that the stage before waits for; those of weights are put off."""
        last = self.now[0] == self.final
        out, grad = (flight.out / count, None) if last else (flight.out, self._taken("B", flight.out))
        owed = input_half(self.model, out, grad, flight.into)
        self._give_back(flight.into)
        return owed

    def _give_back(self, into: Tensor | None) -> None:
        if into is not None:
            assert into.grad is not None
            self._give("B", self.now[0] - 1, into.grad)

    def take(self, like: Tensor) -> Tensor:
        """What the stage before has sent, in place of what was passed by."""
        self.into = self._taken("F", like).requires_grad_()
        return self.into

    def _give(self, way: str, stage: int, x: Tensor) -> None:
        receiver = next(rank for rank, held in enumerate(self.plan.held) if stage in held)
        if receiver == self.place:
            self.here[way, stage, self.now[1]] = x
            return
        x = x.contiguous()
        self.sent.append((dist.isend(x, self._peer(receiver), group=self.mesh["pp"].get_group()), x))

    def _taken(self, way: str, like: Tensor) -> Tensor:
        key = (way, *self.now)
        sender = next((rank for rank, keys in self.due.items() if key in keys), None)
        while sender is not None and key not in self.here:
            into = torch.empty_like(like, memory_format=torch.contiguous_format, requires_grad=False)
            dist.recv(into, self._peer(sender), group=self.mesh["pp"].get_group())
            self.here[self.due[sender].pop(0)] = into
        return self.here.pop(key)

    def _peer(self, place: int) -> int:
        """The rank of the world that holds the same share on that rank of the pipeline."""
        ranks: list[int] = dist.get_process_group_ranks(self.mesh["pp"].get_group())
        return ranks[place]

    def sum_ends(self) -> None:
        """Behind the last backward: what a stage knows of a gradient is a part of it."""
        ranks = self.plan.degrees.dp
        for end in self.plan.ends:
            parameter, form = self.ends.get(end.parameter), self.forms[end.parameter]
            if form.requires_grad and ranks_with(self.plan, end.parameter) > 1:
                self._sum_over_stages(parameter, form)
            if ranks > 1 and parameter is not None and parameter.grad is not None:
                dist.all_reduce(parameter.grad, group=batch_mesh(self.mesh).get_group())
                parameter.grad /= ranks

    def _sum_over_stages(self, parameter: nn.Parameter | None, like: Tensor) -> None:
        grad = None if parameter is None else parameter.grad
        # a stage between those that hold a shared table passes zeros on
        total = torch.zeros(like.shape, dtype=like.dtype, device=self.mesh.device_type) if grad is None else grad
        dist.all_reduce(total, group=self.mesh["pp"].get_group())
        if parameter is not None:
            parameter.grad = total


def ranks_with(plan: AutoPlan, name: str) -> int:
    """How many ranks of the pipeline hold the parameter."""
    count = len(plan.stages)
    return next((sum(e.needed(held, count) for held in plan.held) for e in plan.ends if e.parameter == name), 1)


def routes_of(held: Sequence[Sequence[int]], orders: Orders) -> dict[tuple[int, int], list[Key]]:
    """Messages from one rank of the pipeline to another, in the order in which they are made."""
    rank_of = {stage: rank for rank, stages in enumerate(held) for stage in stages}
    routes: dict[tuple[int, int], list[Key]] = {}
    for rank, order in enumerate(orders):
        for kind, number, chunk in order:
            target = held[rank][chunk] + {"F": 1, "B": -1, "I": -1, "W": len(rank_of)}[kind]
            if rank_of.get(target, rank) != rank:
                way = "F" if kind == "F" else "B"
                routes.setdefault((rank, rank_of[target]), []).append((way, target, number))
    return routes


def staged(model: nn.Module, plan: AutoPlan, mesh: DeviceMesh, orders: Orders, words: Container[str]) -> SplitStage:
    """The model with what this rank's stages need only. `words`: parameters of which ranks hold equal shares of the
    rows."""
    parts = {end.parameter: plan.degrees.tp if end.parameter in words else 1 for end in plan.ends}
    forms = {name: _form(model.get_parameter(name), count) for name, count in parts.items()}
    stage = SplitStage(model, plan, mesh, mesh["pp"].get_local_rank(), orders, forms)
    own = {name for each in plan.held[stage.place] for name in plan.stages[each]}
    for name in plan.order:
        for module in model.get_submodule(name).modules() if name not in own else ():
            module._parameters = dict.fromkeys(module._parameters)
    _drop_ends(stage)
    return stage


def ends_of(model: nn.Module, blocks: Sequence[str]) -> dict[str, nn.Parameter]:
    """Parameters outside the blocks."""
    inside = {id(p) for name in blocks for p in model.get_submodule(name).parameters()}
    return {name: p for name, p in model.named_parameters() if id(p) not in inside}


def _form(parameter: nn.Parameter, parts: int) -> Tensor:
    shape = (parameter.shape[0] // parts, *parameter.shape[1:]) if parts > 1 else parameter.shape
    return torch.empty(shape, dtype=parameter.dtype, device="meta", requires_grad=parameter.requires_grad)


def _drop_ends(stage: SplitStage) -> None:
    """Tables and heads that other ranks hold; a table that is asked behind the first stage answers zeros, which are
    passed by."""
    model, plan = stage.model, stage.plan
    held, count = plan.held[stage.place], len(plan.stages)
    gone = {id(model.get_parameter(end.parameter)) for end in plan.ends if not end.needed(held, count)}
    early = {id(model.get_parameter(end.parameter)) for end in plan.ends if end.first}
    for module in model.modules():
        for name, parameter in module._parameters.items():
            if parameter is not None and id(parameter) in early and isinstance(module, nn.Embedding):
                called_as(module, _asked(stage, module, parameter.dtype))
            if parameter is not None and id(parameter) in gone:
                module._parameters[name] = None
                module.__dict__[name] = parameter.new_empty(0)  # code may ask where it is, and of which type


def called_as(module: nn.Module, call: Callable[..., Any]) -> None:
    """What the code that calls the module gets, outside all of its hooks: those of FSDP2 gather weights."""
    module._compiled_call_impl = call


def _asked(stage: SplitStage, table: nn.Embedding, dtype: torch.dtype) -> Callable[..., Any]:
    def called(words: Tensor, *args: Any, **kwargs: Any) -> Any:
        if stage.now[0] == 0:
            return table._call_impl(words, *args, **kwargs)  # type: ignore[no-untyped-call]
        return torch.zeros(*words.shape, table.embedding_dim, dtype=dtype, device=words.device)

    return called


def connect(stage: SplitStage) -> None:
    """Of the stage that runs, the first block takes what is received and the last one ends the code; the blocks of all
    others are passed by."""
    returns = {name: kind.returns for kind in stage.plan.kinds for name in kind.blocks}
    for name in stage.plan.order:
        block = stage.model.get_submodule(name)
        called_as(block, _gate(stage, name, block, returns[name]))


def _gate(stage: SplitStage, name: str, block: nn.Module, returns: int) -> Callable[..., Any]:
    def called(*args: Any, **kwargs: Any) -> Any:
        own = stage.plan.stages[stage.now[0]]
        if name not in own:
            x = next(each for each in (*args, *kwargs.values()) if isinstance(each, Tensor))
            return x if not returns else (x, *[None] * (returns - 1))
        if name == own[0] and stage.now[0] > 0:
            args, kwargs = _received(stage, args, kwargs)
        output = block._call_impl(*args, **kwargs)  # type: ignore[no-untyped-call]
        if name == own[-1] and stage.now[0] < stage.final:
            raise StageEnd(output if isinstance(output, Tensor) else output[0])
        return output

    return called


def _received(
    stage: SplitStage, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    for place, value in enumerate(args):
        if isinstance(value, Tensor):
            return (*args[:place], stage.take(value), *args[place + 1 :]), kwargs
    name = next(key for key, value in kwargs.items() if isinstance(value, Tensor))
    return args, {**kwargs, name: stage.take(kwargs[name])}


def orders_of(plan: AutoPlan) -> Orders:
    """What every rank does, as the schedule's file says."""
    degrees = plan.degrees
    orders = schedules()[degrees.order].order(degrees.pp, degrees.vpp, degrees.micro_batches)
    return [[(each.kind, each.micro_batch, each.chunk) for each in order] for order in orders]


def cannot_stage(plan: AutoPlan) -> str:
    """Empty, or why the blocks are not a chain, or the schedule not theirs."""
    degrees, schedule = plan.degrees, schedules()[plan.degrees.order]
    holders = {name.rpartition(".")[0] for name in plan.order}
    if len(holders) > 1:
        return f"{len(holders)} stacks of blocks ({', '.join(sorted(holders))}): stages are those of one"
    if len(set(plan.order)) != len(plan.order) or set(plan.order) != set(plan.blocks):
        return "blocks are called more than once, or not at all"
    if not plan.boundary:
        return "blocks take tensors of different shapes"
    if any(kind.returns < 0 for kind in plan.kinds):
        return "a block returns neither a tensor nor values that begin with one"
    if len(plan.order) < degrees.pp * degrees.vpp:
        return f"{len(plan.order)} blocks for {degrees.pp * degrees.vpp} stages"
    if schedule.both_ends:
        return f"{schedule.name} has the model twice, from both ends; ranks hold one here"
    if schedule.splits_backward and degrees.dp > 1:
        return f"{schedule.name} puts gradients of weights off; FSDP2 takes a block's as soon as its inputs' are there"
    if schedule.splits_backward and degrees.recompute:
        return f"{schedule.name} goes through a block twice going back; recomputed blocks are there once"
    return schedule.legal(degrees.pp, degrees.vpp, degrees.micro_batches)
