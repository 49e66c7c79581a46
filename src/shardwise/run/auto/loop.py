"""A training script as it is, from top to bottom: Hugging Face's Trainer, Accelerate, Lightning, or a loop by hand.

It is run once in one process: what its optimizers get at each step is the truth. Ranks run the same file again, and the
model is split in the moment before it is first called to be trained.
"""

import copy
import gc
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook
from torch.utils._pytree import tree_map
from torch.utils.data.dataloader import _BaseDataLoaderIter

from shardwise.run.auto.draws import DrawsOfAll
from shardwise.run.auto.means import count_over_ranks, mean_count, token_means_seen
from shardwise.run.auto.memory import held_elements, state_elements
from shardwise.run.auto.meshes import batch_mesh, mesh_of
from shardwise.run.auto.norms import Clip, clipping, norm_over_ranks
from shardwise.run.auto.plan import AutoPlan
from shardwise.run.auto.program import UserProgram
from shardwise.run.auto.split import Applied, applied
from shardwise.run.auto.truth import Truth, saved_buffers, settings_of
from shardwise.run.auto.watch import before_update, losses_of, part_of, samples_of
from shardwise.run.auto.wide import comparable, widened
from shardwise.run.runtime.private import swapped, swapped_everywhere
from shardwise.run.runtime.train.fork import forked
from shardwise.run.trace.script import Script, ScriptError

OURS = ("torch", "shardwise")
"""packages that may know of the ranks: to the script it is one process"""
LEAST_STEPS = 2
NO_SAMPLES = -1
COUNT = "num_items_in_batch"
"""argument of models of transformers: how many labels of all ranks count, of which each adds up its own"""


class Ended(BaseException):
    """Thrown behind the last step that was wanted."""


ModuleCall = tuple[str, tuple[Any, ...], dict[str, Any]]
"""of the model or of a part of it, by name, from outside"""


@dataclass
class Listener:
    """What is done when the script comes to something."""

    steps: int
    wide: bool
    started: Callable[["Listener"], None]
    """the model is known, and about to be called for the first time"""
    look: Callable[["Listener"], None]
    """an optimizer is about to step"""
    stepped: Callable[["Listener"], None] = lambda _: None
    place: int = 0
    parts: int = 1
    """of a batch, of which this rank has one"""
    model: nn.Module | None = None
    optimizers: list[Optimizer] = field(default_factory=list)
    names: dict[int, str] = field(default_factory=dict)
    """of the modules of the model"""
    calls: list[ModuleCall] = field(default_factory=list)
    """of the first forward pass"""
    losses: list[float] = field(default_factory=list)
    """since the last step"""
    updates: int = 0
    samples: int = 0
    """of the last batch, on this rank"""
    loads: bool = False
    """batches come from a loader of torch"""
    counts: bool = False
    """the model divides its loss by a number that it is given"""
    depth: int = 0

    def entered(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any]:
        """Called from outside of any module, with gradients on."""
        if self.model is None:
            self._find(module)
        if self.model is None:
            return args, kwargs
        if not self.loads:
            args, kwargs = self.cut((args, kwargs))
        count = kwargs.get(COUNT)
        if isinstance(count, Tensor) and count.dim() == 0:
            self.counts = True
            kwargs = {**kwargs, COUNT: mean_count(count, self.parts)}
        if id(module) in self.names and not self.losses and not self.updates:
            own_args, own_kwargs = tree_map(lambda x: x.detach() if isinstance(x, Tensor) else x, (args, kwargs))
            self.calls.append((self.names[id(module)], own_args, own_kwargs))
        return args, kwargs

    def cut(self, batch: Any) -> Any:
        """This rank's part of a batch, in 64 bits where that is wanted."""
        if hasattr(batch, "data") and isinstance(batch.data, dict):  # a dict of transformers
            found = copy.copy(batch)
            found.data = self.cut(batch.data)
            return found
        batch = part_of(widened(batch) if self.wide else batch, self.place, self.parts)
        self.samples = samples_of(batch)
        return batch

    def _find(self, module: nn.Module) -> None:
        """The smallest module that holds what the optimizers train."""
        held = {id(p) for o in self.optimizers for group in o.param_groups for p in group["params"] if p.requires_grad}
        if not held & {id(p) for p in module.parameters()}:
            return
        modules = [x for x in gc.get_objects() if issubclass(type(x), nn.Module) and "_modules" in x.__dict__]
        whole = [m for m in modules if held <= {id(p) for p in m.parameters()}]
        if not whole:
            raise ScriptError("no module holds all that the optimizers train; put the models into one torch.nn.Module")
        # of a model and what merely wraps it, the one that is called
        size = min(sum(1 for _ in m.parameters()) for m in whole)
        whole = [m for m in whole if sum(1 for _ in m.parameters()) == size]
        self.model = module if any(m is module for m in whole) else min(whole, key=lambda m: len(list(m.modules())))
        if self.wide:
            self.model.double()
        self.names = {id(m): name for name, m in self.model.named_modules()}
        self.started(self)


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Inside, whatever a script does with torch is heard."""
    call, gives, begins = nn.Module.__call__, _BaseDataLoaderIter.__next__, Optimizer.__init__
    drawn = DrawsOfAll(listener.place, listener.parts, NO_SAMPLES)

    def called(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
        if listener.depth or not torch.is_grad_enabled():
            return call(module, *args, **kwargs)
        args, kwargs = listener.entered(module, args, kwargs)
        drawn.samples = listener.samples or NO_SAMPLES
        listener.depth += 1
        try:
            return call(module, *args, **kwargs)
        finally:
            listener.depth -= 1

    def given(loader: Any) -> Any:
        drawn.samples = NO_SAMPLES  # a data set draws alike on all ranks
        batch = listener.cut(gives(loader))
        listener.loads, drawn.samples = True, listener.samples
        return batch

    def begun(optimizer: Optimizer, *args: Any, **kwargs: Any) -> None:
        begins(optimizer, *args, **kwargs)
        listener.optimizers.append(optimizer)

    def look() -> None:
        if listener.model is not None:
            listener.look(listener)

    def stepped(*_: Any) -> None:
        if listener.model is None:
            return
        listener.losses.clear()
        listener.updates += 1
        listener.stepped(listener)
        if listener.updates >= listener.steps:
            raise Ended

    hook = register_optimizer_step_post_hook(stepped)
    with ExitStack() as stack:
        stack.callback(hook.remove)
        stack.enter_context(drawn if listener.parts > 1 else ExitStack())
        for owner, name, value in ((nn.Module, "__call__", called), (_BaseDataLoaderIter, "__next__", given),
                                   (Optimizer, "__init__", begun)):  # fmt: skip
            stack.enter_context(swapped(owner, name, value))
        stack.enter_context(swapped_everywhere(dist.is_initialized, _told_to(dist.is_initialized)))
        stack.enter_context(before_update(look))
        listener.losses = stack.enter_context(losses_of())
        yield


def _told_to(asked: Callable[[], bool]) -> Callable[[], bool]:
    """To the script, and to libraries that would share out the work themselves, there is no process group."""

    def is_initialized() -> bool:
        asking = str(sys._getframe(1).f_globals.get("__name__", "")).partition(".")[0]
        return asking in OURS and asked()

    return is_initialized


@dataclass
class ScriptLoop:
    """A script that is run again and again, and what it did in one process."""

    script: Script
    known: set[str]
    """modules that were there before it"""
    truth: Truth
    initial: nn.Module
    """the model before its first step"""
    calls: list[ModuleCall]
    final: dict[str, Tensor] = field(default_factory=dict)
    token_means: int = 0

    @property
    def roots(self) -> tuple[str, ...]:
        """Modules that the script calls, without those inside others of them."""
        names = {path for path, _, _ in self.calls}
        return tuple(sorted(n for n in names if not any(n.startswith(f"{o}." if o else "") for o in names - {n})))

    def run(self, listener: Listener) -> None:
        """From the top, as if for the first time, until so many steps are done."""
        folder = str(self.script.path.resolve().parent)
        for name in set(sys.modules) - self.known:
            file = str(getattr(sys.modules[name], "__file__", None) or "")
            if file.startswith(folder) and "site-packages" not in file:
                del sys.modules[name]
        for seeded in (random.seed, np.random.seed, torch.manual_seed):
            seeded(0)
        with suppress(Ended), comparable(wide=listener.wide), listening(listener):
            self.script.run()


def loop_program(script: Script, steps: int, dtype: str) -> UserProgram:
    """The script run in one process; the program is what it called of its model, again and again."""
    truth = Truth([], [], 0.0, [])
    loop = ScriptLoop(script, set(sys.modules), truth, nn.Module(), [])
    clips: list[Clip] = []

    def started(listener: Listener) -> None:
        assert listener.model is not None
        loop.initial = copy.deepcopy(listener.model)

    def look(listener: Listener) -> None:
        assert listener.model is not None
        parameters = dict(listener.model.named_parameters())
        truth.settings.append(settings_of(listener.optimizers))
        truth.gradients.append({n: None if p.grad is None else p.grad.detach().clone() for n, p in parameters.items()})
        truth.losses.append(sum(listener.losses))
        truth.backwards = max(truth.backwards, len(listener.losses))
        truth.clips, clips[:] = list(clips), []
        if any(means) or listener.counts:
            loop.token_means = len(means) // max(len(listener.losses), 1) + listener.counts
        means.clear()

    def clipped(_: list[Tensor], most: float, order: float) -> None:
        clips.append(Clip(most, order, ()))

    listener = Listener(steps, dtype == "float64", started, look)
    with clipping(clipped), token_means_seen(lambda: listener.samples) as means:
        loop.run(listener)
    name = script.path.name
    if listener.model is None or listener.updates < LEAST_STEPS:
        raise ScriptError(
            f"{name}: it made {listener.updates} optimizer steps with a torch.nn.Module; write a script that makes "
            f"{LEAST_STEPS} or more, or the functions build() -> (model, optimizer), batch() -> inputs and "
            "step(model, optimizer, batch)"
        )
    truth.buffers = {name: buffer.clone() for name, buffer in saved_buffers(listener.model).items()}
    truth.moments = state_elements(listener.optimizers) / max(held_elements(listener.model.parameters()), 1)
    loop.final = {name: p.detach().clone() for name, p in listener.model.named_parameters()}
    loop.calls = listener.calls
    return UserProgram((loop.initial,), _called_again, [loop.calls] * (listener.updates + 1), dtype, loop)


def _called_again(model: nn.Module, calls: list[ModuleCall]) -> None:
    for path, args, kwargs in calls:
        model.get_submodule(path)(*args, **kwargs)


def trained_loop(loop: ScriptLoop, plan: AutoPlan, steps: int) -> list[float]:
    """Losses of the script's first steps on ranks of this machine."""

    def rank(_: int) -> list[float]:
        losses: list[float] = []
        listener = split_listener(plan, steps, lambda each: losses.append(sum(each.losses)))
        loop.run(listener)
        return losses

    found = forked(plan.degrees.ranks, rank)
    return [sum(each) / len(found) for each in zip(*found, strict=True)]


def split_listener(
    plan: AutoPlan, steps: int, look: Callable[[Listener], None], *, wide: bool = False,
    done: Callable[[Applied], None] = lambda _: None, check: Callable[[nn.Module], None] = lambda _: None,
) -> Listener:  # fmt: skip
    """Splits the model of the script on this rank, and gives it its part of every batch."""
    mesh = mesh_of(plan.degrees, "cpu")
    ranks = batch_mesh(mesh)

    def started(listener: Listener) -> None:
        assert listener.model is not None
        check(listener.model)
        made = applied(listener.model, plan, mesh)
        for optimizer in listener.optimizers:
            made.rebind(optimizer)
        norm_over_ranks(made)
        count_over_ranks(listener.model, plan, ranks)
        listener.model.register_state_dict_pre_hook(_refuse_saved)  # type: ignore[no-untyped-call]
        done(made)

    return Listener(steps, wide, started, look, place=ranks.get_local_rank(), parts=ranks.size())


def _refuse_saved(*_: Any) -> None:
    raise ValueError("state_dict: a rank holds a share of the numbers; save behind the steps that are compared")
