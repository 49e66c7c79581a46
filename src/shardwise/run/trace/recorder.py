"""Listens to every operator of the process: what it computes, what it sends, which storages it touches."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import wraps
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.optimizer import (
    Optimizer,
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from shardwise.run.runtime.private import (
    VALUE_ERRORS,
    compiling,
    in_backward,
    is_fake,
    local_of,
    real_waits,
    resizes,
    shape_propagation,
    swapped,
    wraps_others,
)
from shardwise.run.trace import values
from shardwise.run.trace.constants import Constants
from shardwise.run.trace.events import COPIES, Capture, StepEvent, Touched
from shardwise.run.trace.messages import is_message, message_of, tensors_in, written_by
from shardwise.run.trace.on_host import all_on_host, mark_computed
from shardwise.run.trace.operators import QUIET, runs_nothing, size_of, works_of
from shardwise.run.trace.python_calls import PythonCalls
from shardwise.run.trace.replicas import COPYING
from shardwise.run.trace.storages import Storages

MADE_IN = {"forward": "activations", "recompute": "activations", "backward": "working", "optimizer": "working"}
FSDP = "FSDP::"
TRANSFERS = ("send", "recv_", "isend", "irecv")
"""between pipeline stages, outside autograd: gradients after a backward, activations after a forward"""
READ_BY_HOST = ("_local_scalar_dense", "nonzero")
TOLD_EVERY = 200


class StepRecorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Storages are followed from the first operator on; events only between `begin` and `end`."""

    def __init__(self, rank: int, world: int, progress: Callable[[int], None] | None = None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.captured = Capture(rank=rank, world=world)
        self.storages = Storages()
        self.recording = False
        self.operators = 0
        self.stepped: Callable[[Optimizer], None] | None = None
        """called when an optimizer has made its step"""
        self._progress = progress
        self._constants = Constants()
        self._scopes: list[str] = []
        self._after_backward = False
        self._optimizing = False
        self._paused = 0
        self._compiling = self._compiled_calls = 0
        self._calls = self._quiet = 0
        self._python = PythonCalls()

    @contextmanager
    def listening(self) -> Iterator["StepRecorder"]:
        with ExitStack() as stack:
            stack.enter_context(resizes(self.storages.resized))
            stack.enter_context(shape_propagation(self._pauses))
            stack.enter_context(real_waits(self._pauses))
            stack.enter_context(compiling(lambda: self._compiling > 0))
            stack.enter_context(swapped(nn.Module, "__call__", self._watched(nn.Module.__call__)))
            for hook in (
                register_optimizer_step_pre_hook(self._before_optimizer),
                register_optimizer_step_post_hook(self._behind_optimizer),
            ):
                stack.callback(hook.remove)
            stack.callback(self._python.end)
            stack.enter_context(self)
            yield self

    def begin(self) -> None:
        self.storages.begin()
        self.captured.changes = self.storages.changes
        self.captured.events.clear()
        self.captured.numbers_read = 0
        self._after_backward = False
        self._counted_from_here()
        self.recording = True
        self._python.begin()

    def _counted_from_here(self) -> None:
        self._calls = self._quiet = 0

    def end(self) -> None:
        self._python.end()
        self.captured.changes = list(self.storages.changes)
        self.captured.tf32 = torch.get_float32_matmul_precision() != "highest"
        self.recording = False

    def compiles(self, target: Any) -> Any:
        """torch.compile was asked for this module or function: it stays what it is, and is listened to."""
        self.captured.compiled = True
        if isinstance(target, nn.Module):
            target.register_forward_pre_hook(lambda *_: self._compiles(True), prepend=True)
            target.register_forward_hook(lambda *given: self._returned(given[-1]), always_call=True)
            return target

        @wraps(target)
        def listened(*args: Any, **kwargs: Any) -> Any:
            self._compiles(True)
            found = None
            try:
                found = target(*args, **kwargs)
                return found
            finally:
                self._returned(found)

        return listened

    def _returned(self, found: Any) -> None:
        """By what is compiled; autograd asks for a gradient of every tensor in it."""
        self._compiles(False)
        for leaf in tree_leaves(found):
            if isinstance(leaf, Tensor) and leaf.requires_grad:
                self.storages.held(local_of(leaf), "activations").returned = len(self.captured.events)

    def _compiles(self, begins: bool) -> None:
        self._compiled_calls += begins and not self._compiling
        self._compiling += 1 if begins else -1

    def sized(self, tokens: int, samples: int) -> None:
        self.captured.tokens, self.captured.samples = tokens, samples

    def phase(self) -> str:
        """Between a backward pass and the next call of a module all is the optimizer's: reductions, clipping."""
        if in_backward():
            self._after_backward = True
            return "recompute" if torch.is_grad_enabled() else "backward"
        return "optimizer" if self._optimizing or self._after_backward else "forward"

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        goes_on = self._python.pause()
        try:
            return self._dispatched(func, types, args, kwargs or {})
        finally:
            goes_on()

    def _dispatched(self, func: Any, types: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        if wraps_others(types):
            return NotImplemented
        if func.namespace == "profiler":
            return self._labelled(func, args, kwargs)
        if func._opname == "wait_tensor" and is_fake(args[0]):
            return args[0]  # as the real one does; the fake one makes a copy
        try:
            out = func(*args, **kwargs)
        except VALUE_ERRORS:
            out = self._constants.answer(func, args, kwargs)
            if out is None and func._opname == "index":
                args = (args[0], self._places(args[1]), *args[2:])
                out = func(*args, **kwargs)
            elif out is None:
                out = values.answer(func, args)
                if out is values.UNKNOWN:
                    raise
                self.captured.numbers_read += 1
        if not self._paused and func.namespace != "prim":
            if not is_message(func):
                self._constants.follow(func, args, kwargs, out, _written(func, args, kwargs))
            values.follow(func, args, out)
            self._note(func, args, kwargs, out)
        return out

    def _places(self, indices: Any) -> list[Any]:
        """Where masks among the indices are true: CUDA finds that first, and the host waits for how many there are."""
        found: list[Any] = []
        for index in indices:
            if isinstance(index, Tensor) and index.dtype is torch.bool:
                found += self.__torch_dispatch__(torch.ops.aten.nonzero.default, (), (index,)).unbind(1)
            else:
                found.append(index)
        return found

    def _note(self, func: Any, args: Any, kwargs: dict[str, Any], out: Any) -> None:
        self.operators += 1
        if self._progress is not None and self.operators % TOLD_EVERY == 0:
            self._progress(self.operators)
        phase = self.phase()
        message = is_message(func)
        if message and phase == "optimizer" and func._opname in TRANSFERS:
            phase = "backward"
        ins, outs = tensors_in([*args, *kwargs.values()]), tensors_in(out)
        written = written_by(func, args, kwargs) if message else _written(func, args, kwargs)
        outs += [tensor for tensor in written if not any(tensor is other for other in outs)]
        reads, writes = self._touched(ins, MADE_IN[phase]), self._touched(outs, MADE_IN[phase])
        if func.namespace == "fsdp":
            for held, _ in (*reads, *writes):
                if held.kind in ("activations", "working"):
                    held.kind = "gathered"
        compiled = self._compiled_calls if self._compiling else 0
        if not compiled and phase == "backward":
            compiled = max((held.compiled for held, _ in reads), default=0)
        for held, _ in writes if compiled else ():
            held.compiled = compiled
        self._calls += 1
        self._quiet += func._opname in QUIET
        # an optimizer counts its steps on the host
        counted = self._optimizing and any(held.kind == "optimizer" for held, _ in reads)
        asked = func._opname in READ_BY_HOST and not counted and not all_on_host(ins)
        mark_computed(ins, outs)
        if not self.recording or (not message and not asked and runs_nothing(func)):
            return
        scope = COPIES if COPYING.now else self._scopes[-1] if self._scopes else ""
        at, calls, quiet = len(self.storages.changes), self._calls, self._quiet
        python = self._python.taken()
        self._counted_from_here()
        works: list[tuple[str, Any]]
        if message:
            sent = message_of(func, args, kwargs, out)
            works = [(sent.op, sent)]
        else:
            works = [*works_of(func, args, ins, outs)]
        for place, (name, work) in enumerate(works):
            first, last = place == 0, place == len(works) - 1
            self.captured.events.append(
                StepEvent(name, phase, work, scope, reads, writes, at, calls if first else 0, asked and last, compiled,
                          quiet if first else 0, python if first else (0, 0))
            )  # fmt: skip

    def _touched(self, tensors: Iterable[Tensor], kind: str) -> tuple[Touched, ...]:
        """An axis that was expanded lies in memory once."""
        return tuple((self.storages.held(tensor, kind), _held_bytes(tensor)) for tensor in tensors)

    def _labelled(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """FSDP2 says what it does in the profiler's labels."""
        if "enter" in func._opname:
            text = args[0] if args and isinstance(args[0], str) else ""
            self._scopes.append(text.split(" ")[0].removeprefix(FSDP) if text.startswith(FSDP) else "")
        elif self._scopes:
            self._scopes.pop()
        return func(*args, **kwargs)

    def _pauses(self, begins: bool) -> None:
        self._paused += 1 if begins else -1

    def _watched(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """A hook for all modules would send each of them the long way through torch's Python, which is counted."""

        def called(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
            if self._after_backward and not in_backward():
                self._after_backward = False
            self._python.functions += 1
            return call(module, *args, **kwargs)

        return called

    def _before_optimizer(self, optimizer: Optimizer, *_: Any) -> None:
        self._optimizing = True
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        self.storages.label(map(local_of, parameters), "parameters")
        self.storages.label((local_of(p.grad) for p in parameters if p.grad is not None), "gradients")

    def _behind_optimizer(self, optimizer: Optimizer, *_: Any) -> None:
        states = (value for state in optimizer.state.values() for value in state.values())
        self.storages.label((local_of(value) for value in states if isinstance(value, Tensor)), "optimizer")
        self._optimizing = False
        if self.stepped is not None:
            self.stepped(optimizer)


def _held_bytes(tensor: Tensor) -> int:
    return min(size_of(tensor), tensor.untyped_storage().nbytes())


def _written(func: Any, args: Any, kwargs: dict[str, Any]) -> list[Tensor]:
    """Arguments the schema says are written into."""
    found: list[Tensor] = []
    if not func._schema.is_mutable:
        return found
    for place, argument in enumerate(func._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            value = args[place] if place < len(args) else kwargs.get(argument.name)
            found += tensors_in(value)
    return found
