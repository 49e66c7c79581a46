"""The most bytes of tensors that one rank of a split model holds at once in a step: followed as it runs, and foretold
by running that rank alone, in a world that is pretended."""

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from shardwise.run.auto.kept import split_program
from shardwise.run.auto.meshes import batch_mesh, mesh_of
from shardwise.run.auto.norms import Clip
from shardwise.run.auto.offload import on_host
from shardwise.run.auto.plan import AutoPlan
from shardwise.run.auto.program import UserProgram, run_step
from shardwise.run.auto.routing import Choices, gathers_told
from shardwise.run.auto.watch import part_of
from shardwise.run.auto.wide import comparable
from shardwise.run.runtime.fake_world import fake_world
from shardwise.run.runtime.private import local_of, resizes, wraps_others
from shardwise.run.trace.messages import tensors_in
from shardwise.run.trace.storages import Storages

MESSAGE = "message"
"""the kind of a storage that only a message needs"""


class LiveTensors(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Follows every storage that an operator reads or makes while it is on."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.storages = Storages()
        self.scattered: list[int] = []
        """bytes of what was given to be summed and scattered"""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if wraps_others(types):
            return NotImplemented
        out = func(*args, **kwargs)
        if func is torch.ops.c10d._reduce_scatter_base_.default:
            self.scattered.append(args[1].nbytes)
        elif func is torch.ops.aten.split.Tensor:
            self._leave_out(args[0])
        for tensor in tensors_in([*args, *kwargs.values(), out]):
            self.storages.held(tensor, "")
        return out

    def _leave_out(self, tensor: Tensor) -> None:
        """gloo scatters sums by splitting a copy of what it was given. It is no tensor of the program, and on a GPU
        there is none."""
        if tensor.nbytes in self.scattered and not self.storages.knows(tensor):
            self.scattered.remove(tensor.nbytes)
            self.storages.held(tensor, MESSAGE)

    @property
    def peak(self) -> int:
        own = (change for held, change in self.storages.changes if held.kind != MESSAGE)
        return max(accumulate(own), default=0)


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


def foretold_peak(
    program: UserProgram, plan: AutoPlan, clips: list[Clip], rank: int, choices: Sequence[Choices] = ()
) -> int:
    """Of the second step of this rank, without the others: what they would send is left as it comes. `choices`: of
    routers, in one or more steps, of which the least counts."""
    own = program.copy()
    choices = choices if plan.degrees.ep > 1 and choices else ({},)
    with ExitStack() as stack:
        stack.enter_context(fake_world(rank, plan.degrees.ranks))
        stack.enter_context(comparable(wide=own.dtype == "float64"))
        mesh = mesh_of(plan.degrees, "cpu")
        done = split_program(own, plan, mesh)
        place = batch_mesh(mesh).get_local_rank()

        def made() -> None:
            run_step(done, own, part_of(own.batches[-1], place, plan.degrees.dp), clips)

        with gathers_told(own.model, choices[0]):
            made()
        peaks = []
        for told in choices:
            with gathers_told(own.model, told):
                peaks.append(peak_of(own, made))
        return min(peaks)
