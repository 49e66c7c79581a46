"""A strategy around the user's own model and optimizer: two hooks on `optimizer.step()`."""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from shardwise.plugins.sync._events import SyncEvent
from shardwise.plugins.sync._flat import rates_of, read, write
from shardwise.plugins.sync._group import GroupComm
from shardwise.plugins.sync._layout import ParameterLayout
from shardwise.plugins.sync._simulate import check_optimizer
from shardwise.plugins.sync._state import load_state, saved_state
from shardwise.plugins.sync._strategy import Strategy


class SyncHandle:
    """What `wrap` returns: the state to save, the trace, and the way out."""

    def __init__(self, comm: GroupComm, strategy: Strategy, optimizer: torch.optim.Optimizer,
                 parameters: list[nn.Parameter]) -> None:  # fmt: skip
        self.comm, self.strategy, self.optimizer, self.parameters = comm, strategy, optimizer, parameters
        self.steps = 0
        self._moves = type(strategy).on_param is not Strategy.on_param
        self._before: tuple[Tensor, Any] | None = None
        write(parameters, comm.broadcast(read(parameters))[0])
        self.state = strategy.init(comm, read(parameters))
        self._hooks = [
            optimizer.register_step_pre_hook(self._before_step),
            optimizer.register_step_post_hook(self._after_step),
        ]

    def _before_step(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        if kwargs.get("closure") is not None or any(callable(a) and a is not optimizer for a in args):
            raise ValueError("step: a closure computes gradients after they would be sent; call backward() before it")
        self.comm.step = self.steps
        x, rate = read(self.parameters), rates_of(optimizer, self.parameters)
        gradient = read(self.parameters, gradients=True)
        direction = self.strategy.on_grad(self.comm, self.state, x, gradient, rate, self.steps)
        write(self.parameters, direction[0], gradients=True)
        self._before = (x, rate)

    def _after_step(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:  # noqa: ARG002
        if self._moves and self._before is not None:
            x0, rate = self._before
            x = self.strategy.on_param(self.comm, self.state, x0, read(self.parameters), rate, self.steps)
            write(self.parameters, x[0])
        self._before = None
        self.steps += 1

    @property
    def trace(self) -> list[SyncEvent]:
        """Every exchange so far, the first broadcast of the parameters included."""
        return self.comm.trace

    def average(self) -> None:
        """The mean model at every worker: for the end of a run whose workers may disagree."""
        write(self.parameters, self.comm.mean(read(self.parameters))[0])

    def state_dict(self) -> dict[str, Any]:
        return saved_state(self.strategy, self.comm, self.state, self.steps)

    def load_state_dict(self, saved: dict[str, Any], *, reset: bool = False) -> None:
        """Goes on where `saved` stopped. reset: start anew what belongs to workers that are no longer the same."""
        fresh = self.strategy.init(self.comm, read(self.parameters))
        self.state, self.steps = load_state(self.strategy, self.comm, fresh, saved, reset=reset)

    def remove(self) -> None:
        for hook in self._hooks:
            hook.remove()


def wrap(
    model: nn.Module, optimizer: torch.optim.Optimizer, strategy: Strategy, *, group: Any = None, seed: int = 0,
    exact: bool = True,
) -> SyncHandle:  # fmt: skip
    """From now on `optimizer.step()` also communicates. All workers start from the first one's parameters.

    exact: sums in a fixed order, with the bits of `simulate`; False leaves the mean of all to the library's all-reduce.
    """
    n, rank = dist.get_world_size(group), dist.get_rank(group)
    strategy.check(n)
    check_optimizer(strategy, optimizer)
    parameters = [p for p in model.parameters() if p.requires_grad]
    _refuse_sharded(parameters)
    owned = {id(p) for entry in optimizer.param_groups for p in entry["params"]}
    if any(id(p) not in owned for p in parameters):
        raise ValueError("optimizer: it does not hold every trainable parameter of the model; pass all of them to it")
    layout = ParameterLayout.of(model)
    comm = GroupComm(layout, list(range(n)), rank, group=group, seed=seed, device=parameters[0].device, exact=exact)
    return SyncHandle(comm, strategy, optimizer, parameters)


def _refuse_sharded(parameters: list[nn.Parameter]) -> None:
    if any(type(p.data).__name__ == "DTensor" or type(p).__name__ == "DTensor" for p in parameters):
        raise ValueError(
            "model: its parameters are sharded (DTensor); a strategy needs whole ones - "
            "use sync.fsdp_hook on the replicate dimension of HSDP instead of wrap"
        )
