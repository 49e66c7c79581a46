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
from shardwise.run.auto.plan import AutoPlan, Handed
from shardwise.run.auto.watch import part_of, samples_of

Orders = Sequence[Sequence[tuple[str, int, int]]]
"""of every rank of the pipeline: F, B, I or W, of which micro-batch, of which of its chunks"""
Key = tuple[str, int, int, int]
"""a message: F or B, the stage that takes it, the micro-batch, which of the tensors that cross there"""


class StageEnd(BaseException):
    """Thrown behind the last block of a stage."""


@dataclass
class Flight:
    """A micro-batch between its forward and its backward."""

    into: list[Tensor]
    out: list[Tensor]
    """what the next stage takes, some of which may have come in; on the last stage the loss"""


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
    samples: int = 0
    """of that"""
    into: dict[tuple[int, int], Tensor] = field(default_factory=dict)
    """what other stages have made, by the place of the block and which of its tensors"""
    made: dict[tuple[int, int], Tensor] = field(default_factory=dict)
    """and this one"""
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
        routes = routes_of(self.plan, self.orders)
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
                    losses.append(float(flights[self.now].out[0].detach()))
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
        self.into, self.made, self.samples = {}, {}, samples_of(batch)
        ranks, count, place = (
            self.plan.degrees.dp,
            self.plan.degrees.micro_batches,
            batch_mesh(self.mesh).get_local_rank(),
        )
        drawn = DrawsOfAll(place * count + self.now[1], ranks * count, self.samples)
        try:
            with until_backward() as losses, gradients_kept(), drawn:
                step(*parts, batch)
        except StageEnd:
            known = {**self.into, **self.made}
            out = [known[each.place, each.leaf] for each in self.plan.crossing(self.now[0] + 1)]
            for which, x in enumerate(out):
                self._give(("F", self.now[0] + 1, self.now[1], which), x.detach())
        else:
            out = losses[:1]
        return Flight(list(self.into.values()), out)

    def _backward(self, flight: Flight, count: int) -> None:
        out, grads = self._gradients(flight, count)
        learning = [(x, g) for x, g in zip(out, grads, strict=True) if x.requires_grad]
        if learning:
            torch.autograd.backward([x for x, _ in learning], [g for _, g in learning])
        self._give_back(flight.into)

    def _gradients(self, flight: Flight, count: int) -> tuple[list[Tensor], list[Tensor | None]]:
        """What backward begins with."""
        if self.now[0] == self.final:
            return [flight.out[0] / count], [None]
        return flight.out, [self._taken(("B", *self.now, which), x) for which, x in enumerate(flight.out)]

    def _inputs(self, flight: Flight, count: int) -> Owed:
        """The gradient that the stage before waits for; those of weights are put off."""
        out, grads = self._gradients(flight, count)
        owed = input_half(self.model, out[0], grads[0], flight.into[0] if flight.into else None)
        self._give_back(flight.into)
        return owed

    def _give_back(self, into: list[Tensor]) -> None:
        for which, x in enumerate(into):
            grad = torch.zeros_like(x) if x.grad is None else x.grad
            self._give(("B", self.now[0] - 1, self.now[1], which), grad)

    def take(self, handed: Handed, which: int, like: Tensor) -> Tensor:
        """What another stage has made, in place of what was passed by."""
        found = self._taken(("F", *self.now, which), self.form(handed, like)).requires_grad_()
        self.into[handed.place, handed.leaf] = found
        return found

    def form(self, handed: Handed, like: Tensor) -> Tensor:
        """Zeros of its shape, in one number."""
        if not handed.shape:
            return like
        rows = handed.shape[0] // self.plan.samples * self.samples if handed.grows else handed.shape[0]
        return like.detach().new_zeros(()).expand(rows, *handed.shape[1:])

    def _give(self, key: Key, x: Tensor) -> None:
        receiver = next(rank for rank, held in enumerate(self.plan.held) if key[1] in held)
        if receiver == self.place:
            self.here[key] = x
            return
        x = x.contiguous()
        self.sent.append((dist.isend(x, self._peer(receiver), group=self.mesh["pp"].get_group()), x))

    def _taken(self, key: Key, like: Tensor) -> Tensor:
        sender = next((rank for rank, keys in self.due.items() if key in keys), None)
        while sender is not None and key not in self.here:
            way, stage, _, which = self.due[sender][0]
            handed = self.plan.crossing(stage if way == "F" else stage + 1)[which]
            form = self.form(handed, like)  # of an earlier message, which may be of another tensor
            into = torch.empty_like(form, memory_format=torch.contiguous_format, requires_grad=False)
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


def routes_of(plan: AutoPlan, orders: Orders) -> dict[tuple[int, int], list[Key]]:
    """Messages from one rank of the pipeline to another, in the order in which they are made."""
    rank_of = {stage: rank for rank, stages in enumerate(plan.held) for stage in stages}
    crossing = [len(plan.crossing(stage)) for stage in range(len(rank_of) + 1)]
    routes: dict[tuple[int, int], list[Key]] = {}
    for rank, order in enumerate(orders):
        for kind, number, chunk in order:
            target = plan.held[rank][chunk] + {"F": 1, "B": -1, "I": -1, "W": len(rank_of)}[kind]
            if rank_of.get(target, rank) != rank:
                way, border = ("F", target) if kind == "F" else ("B", target + 1)
                keys = [(way, target, number, which) for which in range(crossing[border])]
                routes.setdefault((rank, rank_of[target]), []).extend(keys)
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
    """Of the stage that runs, blocks of stages before it give what is received of them, those behind it end the code;
    what of a block nobody reads here is passed by."""
    returns = {name: kind.returns for kind in stage.plan.kinds for name in kind.blocks}
    for place, name in enumerate(stage.plan.order):
        block = stage.model.get_submodule(name)
        called_as(block, _gate(stage, place, block, returns[name]))


def _gate(stage: SplitStage, place: int, block: nn.Module, returns: int) -> Callable[..., Any]:
    plan, name = stage.plan, stage.plan.order[place]

    def called(*args: Any, **kwargs: Any) -> Any:
        own = plan.stages[stage.now[0]]
        if name not in own:
            x = next(each for each in (*args, *kwargs.values()) if isinstance(each, Tensor))
            output = [x, *[None] * (returns - 1)]
            for each in (each for each in plan.handed if each.place == place):
                output[each.leaf] = stage.form(each, x)
            for which, each in enumerate(plan.crossing(stage.now[0])):
                if each.place == place:
                    output[each.leaf] = stage.take(each, which, x)
            return tuple(output) if returns else output[0]
        made = block._call_impl(*args, **kwargs)  # type: ignore[no-untyped-call]
        for leaf, x in enumerate([made] if isinstance(made, Tensor) else made):
            if isinstance(x, Tensor):
                stage.made[place, leaf] = x
        if name == own[-1] and stage.now[0] < stage.final:
            raise StageEnd
        return made

    return called


def orders_of(plan: AutoPlan) -> Orders:
    """What every rank does, as the schedule's file says."""
    degrees = plan.degrees
    orders = schedules()[degrees.order].order(degrees.pp, degrees.vpp, degrees.micro_batches)
    return [[(each.kind, each.micro_batch, each.chunk) for each in order] for order in orders]


def cannot_stage(plan: AutoPlan) -> str:
    """Empty, or why the blocks are not a chain, or the schedule not theirs."""
    degrees, schedule = plan.degrees, schedules()[plan.degrees.order]
    if len(set(plan.order)) != len(plan.order) or set(plan.order) != set(plan.blocks):
        return "blocks are called more than once, or not at all"
    crossing = [plan.crossing(stage) for stage in range(1, len(plan.stages))]
    if any(kind.returns < 0 for kind in plan.kinds):
        return "a block returns neither a tensor nor values that begin with one"
    if len(plan.order) < degrees.pp * degrees.vpp:
        return f"{len(plan.order)} blocks for {degrees.pp * degrees.vpp} stages"
    if not all(crossing):
        return "nothing that is trained goes from one stage to the next"
    if degrees.tp > 1 and any(each.leaf for border in crossing for each in border):
        return "blocks hand on more than one tensor, of which ranks of tp may have shares"
    if schedule.splits_backward and any(len(border) > 1 for border in crossing):
        return f"{schedule.name} goes back from one tensor; several go from stage to stage"
    if schedule.both_ends:
        return f"{schedule.name} has the model twice, from both ends; ranks hold one here"
    if schedule.splits_backward and degrees.dp > 1:
        return f"{schedule.name} puts gradients of weights off; FSDP2 takes a block's as soon as its inputs' are there"
    if schedule.splits_backward and degrees.recompute:
        return f"{schedule.name} goes through a block twice going back; recomputed blocks are there once"
    return schedule.legal(degrees.pp, degrees.vpp, degrees.micro_batches)
