"""Many workers in one process: the same strategy body on a stack of rows."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, vmap

from shardwise.plugins.sync._events import SyncEvent
from shardwise.plugins.sync._flat import rates_of, read, write
from shardwise.plugins.sync._layout import ParameterLayout
from shardwise.plugins.sync._stack import StackComm
from shardwise.plugins.sync._strategy import State, Strategy

ELEMENTWISE = ("SGD", "Adam", "AdamW", "Adagrad", "RMSprop", "NAdam", "Adamax", "RAdam", "Adadelta", "Rprop", "ASGD")
"""optimizers that treat a stack of n models as n optimizers would, bit for bit"""


@dataclass
class SimulationResult:
    x: Tensor
    """(n, d): every worker's parameters at the end"""
    layout: ParameterLayout
    losses: Tensor
    """(steps, n): of each worker on its own batch, before the step"""
    trace: list[SyncEvent]
    steps: int

    def parameters(self, worker: int | None = None) -> dict[str, Tensor]:
        """By name, of one worker or of the mean model."""
        row = self.x.mean(dim=0) if worker is None else self.x[worker]
        named = zip(self.layout.names, self.layout.shapes, self.layout.bounds, strict=True)
        return {name: row[start:stop].view(shape) for name, shape, (start, stop) in named}


def descend(
    strategy: Strategy, x: Tensor, gradient: Callable[[Tensor, int], Tensor], *, steps: int,
    lr: float | Callable[[int], float], seed: int = 0, watch: Callable[[Tensor, int], None] | None = None,
    state: State | None = None, comm: StackComm | None = None, first_step: int = 0,
) -> tuple[Tensor, StackComm, State]:  # fmt: skip
    """Plain gradient steps of n workers on rows (n, d): for problems whose gradient is a formula."""
    n, d = x.shape
    strategy.check(n)
    comm = StackComm.of(ParameterLayout.flat(d), n, seed, x.device) if comm is None else comm
    state = strategy.init(comm, x) if state is None else state
    for t in range(first_step, first_step + steps):
        comm.step = t
        rate = lr(t) if callable(lr) else lr
        direction = strategy.on_grad(comm, state, x, gradient(x, t), rate, t)
        x = strategy.on_param(comm, state, x, x - rate * direction, rate, t)
        if watch is not None:
            watch(x, t)
    return x, comm, state


def simulate(
    model_fn: Callable[[], nn.Module],
    optimizer_fn: Callable[[list[nn.Parameter]], torch.optim.Optimizer],
    strategy: Strategy,
    *,
    n: int,
    steps: int,
    batch_fn: Callable[[int, int], tuple[Tensor, Tensor]],
    loss_fn: Callable[[Tensor, Tensor], Tensor],
    seed: int = 0,
    batched: bool = True,
) -> SimulationResult:
    """n workers, each a copy of the model with an optimizer of its own; batch_fn(worker, step) -> (inputs, targets).

    batched: gradients of all workers in one pass, and one optimizer over the stack where that is the same; otherwise
    worker by worker with the very operations of a real run, whose bits it then has.
    """
    strategy.check(n)
    model = model_fn()
    check_optimizer(strategy, optimizer_fn([nn.Parameter(torch.zeros(1))]))
    workers = _Stacked(model, optimizer_fn, n) if batched else _Apart(model, optimizer_fn, n)
    comm = StackComm.of(workers.layout, n, seed, workers.x().device)
    state = strategy.init(comm, workers.x())
    losses = []
    for t in range(steps):
        comm.step = t
        losses.append(workers.backward([batch_fn(worker, t) for worker in range(n)], loss_fn))
        x0, rate = workers.x(), workers.rate()
        workers.set_gradient(strategy.on_grad(comm, state, x0, workers.gradient(), rate, t))
        workers.step()
        workers.set_x(strategy.on_param(comm, state, x0, workers.x(), rate, t))
    return SimulationResult(workers.x(), workers.layout, torch.stack(losses), comm.trace, steps)


def check_optimizer(strategy: Strategy, optimizer: torch.optim.Optimizer) -> None:
    """Refuses an optimizer whose step is not the one the strategy's equations assume."""
    if strategy.needs_optimizer() == "any":
        return
    plain = isinstance(optimizer, torch.optim.SGD) and all(group["momentum"] == 0 for group in optimizer.param_groups)
    if not plain:
        raise ValueError(
            f"optimizer: {strategy.name} assumes x - lr * direction and keeps momentum itself, not "
            f"{type(optimizer).__name__}; write torch.optim.SGD(..., momentum=0)"
        )


class _Apart:
    """n models and n optimizers."""

    def __init__(self, model: nn.Module, optimizer_fn: Callable[..., torch.optim.Optimizer], n: int) -> None:
        self.model, self.layout = model, ParameterLayout.of(model)
        self.held = {name: p for name, p in model.named_parameters() if p.requires_grad}
        self.parameters = [[nn.Parameter(p.detach().clone()) for p in self.held.values()] for _ in range(n)]
        self.optimizers = [optimizer_fn(list(row)) for row in self.parameters]

    def backward(self, batches: list[tuple[Tensor, Tensor]], loss_fn: Callable[..., Tensor]) -> Tensor:
        losses = []
        for row, optimizer, (inputs, targets) in zip(self.parameters, self.optimizers, batches, strict=True):
            optimizer.zero_grad()
            out = functional_call(self.model, dict(zip(self.held, row, strict=True)), (inputs,))
            loss = loss_fn(out, targets)
            loss.backward()  # type: ignore[no-untyped-call]
            losses.append(loss.detach())
        return torch.stack(losses)

    def x(self) -> Tensor:
        return torch.cat([read(row) for row in self.parameters])

    def gradient(self) -> Tensor:
        return torch.cat([read(row, gradients=True) for row in self.parameters])

    def rate(self) -> Any:
        return rates_of(self.optimizers[0], self.parameters[0])

    def set_gradient(self, direction: Tensor) -> None:
        for row, values in zip(self.parameters, direction, strict=True):
            write(row, values, gradients=True)

    def set_x(self, x: Tensor) -> None:
        for row, values in zip(self.parameters, x, strict=True):
            write(row, values)

    def step(self) -> None:
        for optimizer in self.optimizers:
            optimizer.step()


class _Stacked:
    """One set of parameters (n, ...), gradients of all workers at once."""

    def __init__(self, model: nn.Module, optimizer_fn: Callable[..., torch.optim.Optimizer], n: int) -> None:
        self.model, self.n, self.layout = model, n, ParameterLayout.of(model)
        held = {name: p for name, p in model.named_parameters() if p.requires_grad}
        self.parameters = {k: nn.Parameter(p.detach().expand(n, *p.shape).clone()) for k, p in held.items()}
        self.optimizer = optimizer_fn(list(self.parameters.values()))
        name = type(self.optimizer).__name__
        if name not in ELEMENTWISE:
            raise ValueError(f"optimizer: {name} does not treat a stack as n models; write batched=False")

    def backward(self, batches: list[tuple[Tensor, Tensor]], loss_fn: Callable[..., Tensor]) -> Tensor:
        def loss_of(parameters: dict[str, Tensor], inputs: Tensor, targets: Tensor) -> Tensor:
            return loss_fn(functional_call(self.model, parameters, (inputs,)), targets)

        inputs, targets = (torch.stack(side) for side in zip(*batches, strict=True))
        stack = {name: p.detach() for name, p in self.parameters.items()}
        gradients, losses = vmap(grad_and_value(loss_of), randomness="different")(stack, inputs, targets)
        for name, p in self.parameters.items():
            p.grad = gradients[name]
        found: Tensor = losses.detach()
        return found

    def _joined(self, tensors: list[Tensor]) -> Tensor:
        return torch.cat([tensor.detach().reshape(self.n, -1).float() for tensor in tensors], dim=1)

    def x(self) -> Tensor:
        return self._joined(list(self.parameters.values()))

    def gradient(self) -> Tensor:
        return self._joined([p.grad for p in self.parameters.values() if p.grad is not None])

    def rate(self) -> Any:
        return rates_of(self.optimizer, list(self.parameters.values()), worker_axis=True)

    def set_gradient(self, direction: Tensor) -> None:
        for p, (start, stop) in zip(self.parameters.values(), self.layout.bounds, strict=True):
            p.grad = direction[:, start:stop].reshape(p.shape).to(p.dtype)

    def set_x(self, x: Tensor) -> None:
        with torch.no_grad():
            for p, (start, stop) in zip(self.parameters.values(), self.layout.bounds, strict=True):
                p.copy_(x[:, start:stop].reshape(p.shape))

    def step(self) -> None:
        self.optimizer.step()
