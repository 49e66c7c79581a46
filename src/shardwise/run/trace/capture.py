"""Runs a script's training step twice, the second time listening: one rank of a pretended world, or a real rank."""

import sys
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.optim.optimizer import Optimizer
from torch.utils._pytree import tree_leaves

from shardwise.run.runtime.private import local_of
from shardwise.run.trace.events import Capture
from shardwise.run.trace.pretend import no_gpu_needed, pretended_world
from shardwise.run.trace.recorder import StepRecorder
from shardwise.run.trace.script import Script, ScriptError, script_of, told_in_one_line

Progress = Callable[[str, int], None]
"""told what is done and how many operators have run"""


class StepsMade(BaseException):
    """Thrown out of a script that has made its second step."""


def traced(
    path: Path, world: int, rank: int = 0, progress: Progress | None = None, arguments: Sequence[str] = ()
) -> Capture:
    """One rank of so many, in this process; what the script prints goes to stderr."""
    if not 0 <= rank < world:
        raise ValueError(f"rank: {rank} is out of range; write 0 to {world - 1}")
    script = script_of(path, arguments)
    with redirect_stdout(sys.stderr), told_in_one_line(script), pretended_world(rank, world):
        return _captured(script, rank, world, progress)


def ran(path: Path) -> Capture:
    """The same on the process group that is there, with real tensors: what a trace is held against."""
    script = script_of(path)
    with told_in_one_line(script):
        return _captured(script, dist.get_rank(), dist.get_world_size(), None)


def _captured(script: Script, rank: int, world: int, progress: Progress | None) -> Capture:
    stage = "building" if script.functions else "running the script"
    recorder = StepRecorder(rank, world, None if progress is None else lambda count: progress(stage, count))
    with no_gpu_needed(rank, world, recorder.compiles, script.path.parent), recorder.listening():
        if not script.functions:
            _whole(script, recorder)
            return recorder.captured
        names = script.run()
        built = script.call(names["build"], world)
        parts = built if isinstance(built, tuple) else (built,)
        models = [part for part in parts if isinstance(part, nn.Module)]
        for model in models:
            _made_real(model)
        for recorded in (False, True):
            stage = "second step" if recorded else "first step"
            batch = (script.call(names["batch"], world),) if "batch" in names else ()
            if recorded:
                recorder.storages.label(_state(models), "parameters")
                recorder.begin()
                recorder.sized(*_sizes(batch))
            script.call(names["step"], *parts, *batch)
        recorder.end()
    return recorder.captured


def _whole(script: Script, recorder: StepRecorder) -> None:
    """A script run from top to bottom: its second step lies between the ends of two optimizer steps."""
    first: list[Optimizer] = []

    def stepped(optimizer: Optimizer) -> None:
        if not first:
            first.append(optimizer)
            recorder.begin()
        elif optimizer is first[0]:
            recorder.end()
            raise StepsMade

    recorder.stepped = stepped
    try:
        script.run()
    except StepsMade:
        return
    raise ScriptError(
        f"{script.path.name} has no functions `build` and `step`, and run from top to bottom it made "
        f"{'one optimizer step' if first else 'no optimizer step'}; write two steps or more, or the functions "
        "build() -> (model, optimizer), batch() -> inputs and step(model, optimizer, batch)"
    )


def _state(models: list[nn.Module]) -> list[Tensor]:
    return [local_of(t) for model in models for t in (*model.parameters(), *model.buffers())]


def _made_real(model: nn.Module) -> None:
    """A model left on the meta device gets storages; the optimizer keeps the same parameters."""
    if not any(p.is_meta for p in model.parameters()):
        return
    before = torch.__future__.get_swap_module_params_on_conversion()
    torch.__future__.set_swap_module_params_on_conversion(True)
    try:
        model.to_empty(device="cpu")
    finally:
        torch.__future__.set_swap_module_params_on_conversion(before)


def _sizes(batch: Any) -> tuple[int, int]:
    """(tokens, samples): elements of the largest tensor of integers, length of the first axis."""
    tensors = [leaf for leaf in tree_leaves(batch) if isinstance(leaf, Tensor) and leaf.dim()]
    whole = [t.numel() for t in tensors if not t.is_floating_point() and t.dim() >= 2]
    return max(whole, default=0), max((t.shape[0] for t in tensors), default=0)
