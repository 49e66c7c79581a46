"""Experts whose weights lie in one tensor each: shared out along the width between their two products."""

from collections.abc import Iterator
from itertools import product

from msgspec.structs import replace
from torch import nn

from shardwise.run.auto.plan import ExpertStack, ProductCut
from shardwise.run.auto.sizes import fitting
from shardwise.run.auto.trial import CutTrial, Run, stacked


def expert_cut(whole: Run, name: str, ranks: int) -> tuple[ProductCut | None, str]:
    """A cut that adds up, or why the first one tried does not."""
    module = whole.block.get_submodule(name)
    if name not in whole.outputs:
        return None, "its weights are not used in one call with one output"
    trial = CutTrial(whole, name, ranks)
    first = ""
    for stacks, divided in _with_biases(module, name, ranks):
        cut = ProductCut(around=name, stacks=stacks, divided=divided)
        fitted, why = fitting(cut, whole.block, ranks, trial.proven)
        if fitted is not None:
            inner, inputs = trial.inner(fitted)
            if inputs:
                return None, f"{', '.join(inputs)} of the block enters between the GEMMs"
            return trial.counted(replace(fitted, inner=tuple(inner))), ""
        first = first or why
    return None, first or f"no axis of its weights is shared evenly by {ranks} ranks"


def _ways(module: nn.Module, name: str, ranks: int) -> Iterator[tuple[ExpertStack, ...]]:
    """One weight leads out of the width, the others lead into it: once as wide, or with two parts in one tensor, the
    parts one behind the other or in turn."""
    weights = {each: module.get_parameter(each).shape for each in stacked(module)}
    for last in reversed(list(weights)):
        for axis in (2, 1):
            width, outer = weights[last][axis], weights[last][3 - axis]
            others = {each: shape for each, shape in weights.items() if each != last}
            if width % ranks or not all(outer in shape[1:] for shape in others.values()):
                continue
            for in_turn in (False, True):
                stacks = [
                    _into(f"{name}.{each}", shape, outer, width, ranks, in_turn) for each, shape in others.items()
                ]
                if all(stack is not None for stack in stacks):
                    own = ExpertStack(parameter=f"{name}.{last}", axis=axis, indices=_even(width, ranks))
                    yield (*(stack for stack in stacks if stack is not None), own)
                if all(width in shape[1:] for shape in others.values()):
                    break  # one part: no order of parts


def biases_of(module: nn.Module) -> list[str]:
    """Its own weights with a row for each of the experts."""
    count = module.get_parameter(stacked(module)[0]).shape[0]
    found = [(name, p.shape) for name, p in module.named_parameters(recurse=False)]
    return [name for name, shape in found if len(shape) == 2 and shape[0] == count]


def _with_biases(module: nn.Module, name: str, ranks: int) -> Iterator[tuple[tuple[ExpertStack, ...], tuple[str, ...]]]:
    """Each bias goes with one of the weights that lead into the width, or is added whole to what is summed."""
    for stacks in _ways(module, name, ranks):
        choices: list[list[ExpertStack | str]] = []
        for bias in biases_of(module):
            long, named = module.get_parameter(bias).shape[1], f"{name}.{bias}"
            alike = [s for s in stacks[:-1] if _length(module, name, s) == long]
            choices.append([replace(s, parameter=named, axis=1) for s in alike])
            choices[-1] += [named] if long == _length(module, name, stacks[-1], other=True) else []
        for chosen in product(*choices):
            yield (
                (*stacks, *(each for each in chosen if isinstance(each, ExpertStack))),
                tuple(each for each in chosen if isinstance(each, str)),
            )


def _length(module: nn.Module, name: str, stack: ExpertStack, *, other: bool = False) -> int:
    """Of the axis that is shared out, or of the other one."""
    shape = module.get_parameter(stack.parameter.removeprefix(f"{name}.")).shape
    return shape[3 - stack.axis if other else stack.axis]


def _into(name: str, shape: tuple[int, ...], outer: int, width: int, ranks: int, in_turn: bool) -> ExpertStack | None:
    for axis in (1, 2):
        if shape[3 - axis] != outer:
            continue
        if shape[axis] == width:
            return ExpertStack(parameter=name, axis=axis, indices=_even(width, ranks))
        if shape[axis] == 2 * width:
            even = _even(width, ranks)
            if in_turn:
                return ExpertStack(
                    parameter=name,
                    axis=axis,
                    indices=tuple(tuple(x for i in own for x in (2 * i, 2 * i + 1)) for own in even),
                )
            return ExpertStack(
                parameter=name, axis=axis, indices=tuple((*own, *(width + i for i in own)) for own in even)
            )
    return None


def _even(width: int, ranks: int) -> tuple[tuple[int, ...], ...]:
    share = width // ranks
    return tuple(tuple(range(rank * share, (rank + 1) * share)) for rank in range(ranks))
