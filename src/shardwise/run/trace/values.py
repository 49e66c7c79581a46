"""What a traced step says when its code asks for values, which its tensors do not have.

Numbers are 1.0, "are all of them ...?" is yes, so all elements of a mask count; any other question is no. How many
elements are picked follows from where they come from: a router that picks k of E experts for each token picks every
expert, and all equally often. What is known of a router's choices is a constant.
"""

from typing import Any

import torch
from torch import Tensor

from shardwise.run.runtime.private import unheard_and_real
from shardwise.run.trace.constants import TWIN

SHARE = "_share_picked"
"""of a mask: the share of its elements that are true"""
CHOICES = "_one_of"
"""of indices: how many there are to pick from"""
INDEX = "_is_index"
"""of what `nonzero` gave, and of a seed that was drawn: any of them is as good as the first"""
ARE_ALL = "_are_all"
"""of an answer: whether it was asked of all"""
NONE_LOST = "_none_lost"
"""of what a gradient scaler reads: whether gradients were too large for their type; none ever is"""
UNSCALES = "_amp_foreach_non_finite_check_and_unscale_"
COUNT_OF = "_count_of"
"""of the number of elements that are true: of how many"""
PICKS = "_times_picked"
"""of how often each choice was picked: the mean"""
NEVER = "_never_true"
"""of a mask of what no healthy number is, and of how many of its elements are true"""
UNHEALTHY = frozenset({"isnan", "isinf"})
KEEPS = frozenset({"_to_copy", "clone", "index", "index_select", "copy", "lift_fresh", "reshape", "contiguous", "sort"})
"""besides views: the result holds what the argument held"""
COMPARES = frozenset({"eq"})
PICKERS = frozenset({"topk", "max", "min", "argmax", "argmin"})
"""choose among the elements of an axis"""
QUESTIONS = frozenset({"gt", "ge", "ne", "greater", "not_equal", "bitwise_and", "logical_and"})
UNKNOWN = object()


def follow(func: Any, args: Any, out: Any) -> None:
    """Marks what an operator made of marked tensors, and what routers make."""
    name = func._opname
    if name in PICKERS:
        _mark_choices(name, args, out)
        return
    if name == "random_":
        setattr(out, INDEX, True)
        return
    if name == UNSCALES:
        setattr(args[1], NONE_LOST, True)
        return
    if name in UNHEALTHY:
        setattr(out, NEVER, True)
        return
    if name in ("all", "any") and isinstance(out, Tensor):
        _mark_asked(name, args[0], out)
        return
    if name == "histc" and hasattr(args[0], CHOICES):
        setattr(out, TWIN, _even(args[0].numel(), out.numel(), out.dtype))
        return
    if name == "scatter" and hasattr(args[2], CHOICES):
        setattr(out, SHARE, args[2].shape[args[1]] / getattr(args[2], CHOICES))
        return
    source = args[0] if args else None
    if not isinstance(source, Tensor) or not isinstance(out, (Tensor, list, tuple)):
        return
    if name in ("sum", "eq") and hasattr(source, NEVER) and isinstance(out, Tensor):
        # none of them is, so their sum is zero
        setattr(out, *((NEVER, True) if name == "sum" else (ARE_ALL, args[1] == 0)))
        return
    if name == "sum" and source.dtype is torch.bool and isinstance(out, Tensor) and not out.dim():
        setattr(out, COUNT_OF, source.numel())
    if name == "eq" and getattr(source, COUNT_OF, None) == args[1]:
        setattr(out, ARE_ALL, True)
        return
    marks = {mark: getattr(source, mark) for mark in (SHARE, CHOICES, INDEX, PICKS) if hasattr(source, mark)}
    if not marks:
        return
    if name in COMPARES and CHOICES in marks:
        setattr(out, SHARE, 1.0 / marks[CHOICES])
    elif name == "sum" and SHARE in marks and isinstance(out, Tensor):
        setattr(out, SHARE, 1.0)
        setattr(out, PICKS, marks[SHARE] * source.numel() / max(out.numel(), 1))
    elif func.is_view or name in KEEPS or name in QUESTIONS:
        for tensor in (out,) if isinstance(out, Tensor) else out:
            for mark, value in marks.items():
                if isinstance(tensor, Tensor):
                    setattr(tensor, mark, value)


def _mark_choices(name: str, args: Any, out: Any) -> None:
    """`max` of a whole tensor, or of two, chooses nothing."""
    places = out if name.startswith("arg") else out[1] if isinstance(out, (list, tuple)) else None
    if places is not None:
        axis = args[2] if name == "topk" and len(args) > 2 else args[1] if name != "topk" and len(args) > 1 else None
        last = -1 if name == "topk" else None
        axis = last if axis is None else axis
        setattr(places, CHOICES, args[0].numel() if axis is None else args[0].shape[axis])


def _mark_asked(name: str, source: Tensor, out: Tensor) -> None:
    """Is any, are all of them true? Of what a router picks some are; of any other mask all are."""
    share = getattr(source, SHARE, None)
    if share is None:
        setattr(out, ARE_ALL, name == "all")
        return
    setattr(out, ARE_ALL, name == "any" or share == 1.0)
    if name == "any" and out.dim():
        # a token picks an expert once
        setattr(out, SHARE, min(share * source.numel() / max(out.numel(), 1), 1.0))


def _even(picks: int, choices: int, dtype: torch.dtype = torch.int64) -> Tensor:
    """How often each is picked, as whole numbers that add up."""
    with unheard_and_real():
        counts = [(picks * (at + 1)) // choices - (picks * at) // choices for at in range(choices)]
        return torch.tensor(counts, dtype=dtype)


def _constant(values: Tensor) -> Tensor:
    made = torch.empty_strided(values.shape, values.stride(), dtype=values.dtype)
    setattr(made, TWIN, values)
    return made


def picked(hot: Tensor, classes: int) -> Tensor:
    """Marks a one-hot tensor."""
    setattr(hot, SHARE, 1.0 / classes)
    return hot


def answer(func: Any, args: Any) -> Any:
    """For an operator that failed because it needs values; UNKNOWN if there is no good one."""
    asked = args[0]
    if func._opname == "_local_scalar_dense":
        if asked.dtype.is_floating_point:
            return 0.0 if hasattr(asked, NONE_LOST) else 1.0
        if asked.dtype is torch.bool:
            return bool(getattr(asked, ARE_ALL, False))
        if hasattr(asked, PICKS):
            return round(getattr(asked, PICKS))
        if hasattr(asked, NEVER) or hasattr(asked, INDEX):
            return 0
        return getattr(asked, COUNT_OF, UNKNOWN)
    if func._opname == "nonzero" and hasattr(asked, SHARE):
        return _picked_places(asked)
    if hasattr(asked, CHOICES) and func._opname == "bincount":
        least = args[2] if len(args) > 2 else 0
        return _constant(_even(asked.numel(), max(getattr(asked, CHOICES), least)))
    if hasattr(asked, CHOICES) and func._opname == "_unique2":
        return _every_choice(asked)
    return UNKNOWN


def _picked_places(mask: Tensor) -> Tensor:
    share = getattr(mask, SHARE)
    if share == 1.0:
        with unheard_and_real():
            everywhere = torch.ones(mask.shape, dtype=torch.bool).nonzero()
        return _constant(everywhere)
    count = max(round(mask.numel() * share), 1)
    found = torch.empty((count, mask.dim()), dtype=torch.int64)
    setattr(found, INDEX, True)
    return found


def _every_choice(chosen: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """What `unique` gives: the choices, which of them each element is, how often each is there."""
    many = getattr(chosen, CHOICES)
    with unheard_and_real():
        numbers = torch.arange(many).to(chosen.dtype)
    return _constant(numbers), torch.empty(chosen.shape, dtype=torch.int64), _constant(_even(chosen.numel(), many))
