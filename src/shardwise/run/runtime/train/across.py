"""A strategy of data parallelism across the replicas of a run, in place of the mean gradient.

Rows are cut by who else holds the same numbers: what every tensor-parallel rank holds whole, and a table that both ends
of the pipeline hold, have rows of their own, so that their copies are compressed alike and stay equal.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite

import torch
from torch import Tensor

from shardwise.plugins.sync import ParameterLayout, Strategy
from shardwise.plugins.sync._group import GroupComm
from shardwise.plugins.sync._named import strategy_named
from shardwise.plugins.sync._simulate import check_optimizer
from shardwise.plugins.sync._state import load_state, saved_state
from shardwise.plugins.sync._strategy import State
from shardwise.run.runtime.parallel.held import Local, ParameterSpan
from shardwise.run.runtime.parallel.world import RankWorld
from shardwise.run.runtime.train.optimizer import LocalOptimizer, squares
from shardwise.run.runtime.train.task import Task

Places = list[tuple[int, ParameterSpan]]
"""(number of the local tensor, run of elements in it)"""


@dataclass
class WorkerRow:
    places: Places
    comm: GroupComm
    state: State

    def read(self, tensors: Sequence[Tensor]) -> Tensor:
        return torch.cat([tensors[i][s.at : s.at + s.length] for i, s in self.places])[None]

    def write(self, tensors: Sequence[Tensor], row: Tensor) -> None:
        pieces = torch.split(row[0], [s.length for _, s in self.places])
        for (i, span), piece in zip(self.places, pieces, strict=True):
            tensors[i][span.at : span.at + span.length] = piece


class Across:
    def __init__(self, strategy: Strategy, locals_: Sequence[Local], world: RankWorld, clip: float, seed: int) -> None:
        self.strategy, self.world, self.clip, self.steps = strategy, world, clip, 0
        self.tensors = [local.tensor for local in locals_]
        kinds: dict[tuple[bool, bool], Places] = {}
        for number, local in enumerate(locals_):
            for span in local.spans:
                piece = span.held.piece
                kinds.setdefault((bool(piece.cuts), piece.tied), []).append((number, span))
        self.rows = [self._row(places, seed + 7919 * index) for index, (_, places) in enumerate(sorted(kinds.items()))]

    def _row(self, places: Places, seed: int) -> WorkerRow:
        group = self.world.replica
        layout = ParameterLayout.named((f"{i}.{s.held.piece.name}.{s.first}", _shape(s)) for i, s in places)
        comm = GroupComm(layout, list(range(group.size)), group.index, group=group.handle, seed=seed,
                         device=self.world.device, exact=False)  # fmt: skip
        row = WorkerRow(places, comm, {})
        row.state = self.strategy.init(comm, row.read(self.tensors))
        return row

    def step(self, optimizer: LocalOptimizer, locals_: Sequence[Local], rate: float) -> float:
        """Returns the norm of this worker's own gradient, or of one that is not finite, so that all stop; gradients are
        clipped before anything is compressed, since what is cut off afterwards would be lost to error feedback."""
        grads = [local.grad for local in locals_ if local.grad is not None]
        assert len(grads) == len(locals_), "ZeRO 0 to 2 keep every gradient"
        workers = self.world.replica.size
        norms = self._norms(locals_)
        norm = workers * norms[self.world.replica.index]
        # the loss is divided by the tokens of all workers, a worker's own gradient by its own
        scale = workers * (min(self.clip / (norm + 1e-6), 1.0) if self.clip else 1.0)
        before = []
        with torch.no_grad():
            for row in self.rows:
                row.comm.step = self.steps
                x = row.read(self.tensors)
                before.append(x)
                direction = self.strategy.on_grad(row.comm, row.state, x, row.read(grads) * scale, rate, self.steps)
                row.write(grads, direction)
            optimizer.apply(locals_, rate)
            for row, x in zip(self.rows, before, strict=True):
                after = row.read(self.tensors)
                found = self.strategy.on_param(row.comm, row.state, x, after, rate, self.steps)
                if found is not after:
                    row.write(self.tensors, found)
                row.comm.trace.clear()
        self.steps += 1
        return next((other for other in norms if not isfinite(other)), norm)

    def _norms(self, locals_: Sequence[Local]) -> list[float]:
        """Of each worker."""
        world = self.world
        total = torch.zeros(world.replica.size, dtype=torch.float64, device=world.device)
        total[world.replica.index] = squares(locals_, world)
        world.comm.all_reduce(total, world.everyone)
        return [float(value) for value in total.sqrt()]

    @property
    def own_names(self) -> str:
        """Before the names of parameters in a checkpoint, where workers may hold different ones."""
        return "" if self.strategy.gradient_only else f"worker {self.world.replica.index}."

    def saved(self) -> dict[str, Tensor]:
        """What this rank must have again to go on, by name."""
        states = [saved_state(self.strategy, row.comm, row.state, self.steps)["state"] for row in self.rows]
        return {f"{index}.{key}": value for index, state in enumerate(states) for key, value in _flat(state).items()}

    def load(self, saved: dict[str, Tensor], steps: int) -> None:
        self.steps = steps
        for index, row in enumerate(self.rows):
            mine = saved_state(self.strategy, row.comm, row.state, steps)
            mine["state"] = _nested(mine["state"], f"{index}.", saved)
            row.state, _ = load_state(self.strategy, row.comm, row.state, mine, reset=False)


def across_of(task: Task, locals_: Sequence[Local], world: RankWorld, optimizer: LocalOptimizer) -> Across | None:
    if not task.policy.sync:
        return None
    strategy = strategy_named(task.policy.sync)
    check_optimizer(strategy, next(iter(optimizer.inner.values())))
    return Across(strategy, locals_, world, optimizer.settings.clip, task.seed)


def _shape(span: ParameterSpan) -> tuple[int, ...]:
    """Of a whole parameter as it is; of a part of one its length."""
    parameter = span.held.parameter
    return tuple(parameter.shape) if span.length == parameter.numel() else (span.length,)


def _flat(state: dict[str, object], head: str = "") -> dict[str, Tensor]:
    found: dict[str, Tensor] = {}
    for key, value in state.items():
        found |= {head + key: value} if isinstance(value, Tensor) else _flat(value, f"{head}{key}/")  # type: ignore[arg-type]
    return found


def _nested(like: dict[str, object], head: str, saved: dict[str, Tensor]) -> dict[str, object]:
    return {
        key: saved[head + key] if isinstance(value, Tensor) else _nested(value, f"{head}{key}/", saved)  # type: ignore[arg-type]
        for key, value in like.items()
    }
