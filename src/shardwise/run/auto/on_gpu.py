"""A program, and what one process did with it on the CPU, moved to the GPU that all ranks of a proof share."""

from dataclasses import replace
from typing import Any

from torch import Tensor, nn
from torch.utils._pytree import tree_map

from shardwise.run.auto.program import UserProgram
from shardwise.run.auto.truth import Truth

GPU = "cuda"


def cannot_move(program: UserProgram, truth: Truth) -> str:
    """Empty, or why it is proven on CPU ranks only."""
    if program.loop is not None:
        return (
            "a script that runs from top to bottom was run on the CPU, with its tensors there; write the functions "
            "build, batch and step, or leave --share-gpu away"
        )
    if truth.draws:
        return "its steps draw random numbers, which a GPU draws otherwise than the CPU; leave --share-gpu away"
    return ""


def placed(program: UserProgram, truth: Truth, *, shared: bool) -> tuple[UserProgram, Truth]:
    """A rank's own copy; `shared`: on the GPU. Parameters are moved in place: optimizers hold them."""
    own = program.copy()
    if not shared:
        return own, truth
    for part in own.parts:
        if isinstance(part, nn.Module):
            part.to(GPU)
    own.parts = tuple(_moved(part) if isinstance(part, dict | list) else part for part in own.parts)
    own.batches = _moved(own.batches)
    return own, replace(truth, gradients=_moved(truth.gradients), buffers=_moved(truth.buffers))


def _moved(value: Any) -> Any:
    return tree_map(lambda x: x.to(GPU) if isinstance(x, Tensor) else x, value)
