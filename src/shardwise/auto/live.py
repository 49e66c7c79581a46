"""The most bytes of tensors that one rank of a split model holds at once in a step: followed as it runs, and foretold
by running that rank alone, in a world that is pretended."""

import gc
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import accumulate
from typing import Any

import torch.distributed as dist
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from shardwise.auto.meshes import batch_mesh, mesh_of
from shardwise.auto.norms import Clip
from shardwise.auto.offload import on_host
from shardwise.auto.plan import AutoPlan
from shardwise.auto.program import UserProgram, run_step
from shardwise.auto.split import applied
from shardwise.auto.watch import part_of
from shardwise.auto.wide import comparable
from shardwise.runtime.fake import fake_world
from shardwise.trace.messages import tensors_in
from shardwise.trace.private import forget_meshes, local_of, resizes, swapped, wraps_others
from shardwise.trace.storages import Storages

_gather = dist.all_gather


class LiveTensors(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Follows every storage that an operator reads or makes while it is on."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.storages = Storages()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if wraps_others(types):
            return NotImplemented
        out = func(*args, **kwargs)
        for tensor in tensors_in([*args, *kwargs.values(), out]):
            self.storages.held(tensor, "")
        return out

    @property
    def peak(self) -> int:
        return max(accumulate(change for _, change in self.storages.changes), default=0)


def peak_of(program: UserProgram, step: Callable[[], object]) -> int:
    """Bytes while the step runs, with what the model and its optimizers held before."""
    live = LiveTensors()
    kept = [*program.model.parameters(), *program.model.buffers()]
    kept += [x for optimizer in program.optimizers for state in optimizer.state.values() for x in state.values()]
    for tensor in (local_of(x) for x in kept if isinstance(x, Tensor)):
        if not on_host(tensor):
            live.storages.held(tensor, "")
    live.storages.begin()
    with ExitStack() as stack:
        stack.enter_context(_uncollected())
        stack.enter_context(resizes(live.storages.resized))
        stack.enter_context(live)
        step()
    return live.peak


@contextmanager
def _uncollected() -> Iterator[None]:
    """Python frees tensors that point at each other when it pleases: before the step, not in it."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _echo(parts: list[Tensor], x: Tensor, group: Any = None) -> None:
    """The others send what this rank does: a router's choices at least are such."""
    _gather(parts, x, group=group)
    for part in parts:
        part.copy_(x)


def foretold_peak(program: UserProgram, plan: AutoPlan, clips: list[Clip], rank: int) -> int:
    """Of the second step of this rank, without the others: what they would send is left as it comes."""
    own = program.copy()
    with ExitStack() as stack:
        stack.enter_context(fake_world(rank, plan.degrees.ranks))
        stack.enter_context(comparable(wide=own.dtype == "float64"))
        stack.enter_context(swapped(dist, "all_gather", _echo))
        try:
            mesh = mesh_of(plan.degrees, "cpu")
            done = applied(own.model, plan, mesh)
            for optimizer in own.optimizers:
                done.rebind(optimizer)
            part = part_of(own.batches[-1], batch_mesh(mesh).get_local_rank(), plan.degrees.dp)
            run_step(done, own, part, clips)
            return peak_of(own, lambda: run_step(done, own, part, clips))
        finally:
            forget_meshes()
