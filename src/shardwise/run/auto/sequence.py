"""Tokens shared out between the cut products of a block: norms and sums run on each rank's own (sequence parallelism).

Where products are entered the tokens of all ranks are joined, where they are left each rank keeps its own of the sum.
The code around the blocks runs on whole sequences.
"""

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from shardwise.run.auto.cutting import enter_weight
from shardwise.run.auto.lanes import Lane, RankLane
from shardwise.run.auto.tokens import own_tokens, wholes_output


def sum_outside(block: nn.Module, names: tuple[str, ...], lane: Lane, held: set[object]) -> None:
    """Parameters that see this rank's tokens only: their gradients are summed."""
    for name in names:
        enter_weight(block, name, lane, held, block)


def share_between(first: nn.Module, last: nn.Module, lane: RankLane) -> None:
    """From the first block to the last one ranks have their own tokens."""
    first.register_forward_pre_hook(_entering(lane), with_kwargs=True)
    last.register_forward_hook(wholes_output(lane))


def _entering(lane: RankLane) -> Callable[..., Any]:
    def hook(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return with_first(args, kwargs, lambda x: own_tokens(x, lane))

    return hook


def with_first(
    args: tuple[Any, ...], kwargs: dict[str, Any], change: Callable[[Tensor], Tensor]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments with their first tensor of numbers, which the block before has made, changed."""
    for place, value in enumerate(args):
        if isinstance(value, Tensor) and value.is_floating_point():
            return (*args[:place], change(value), *args[place + 1 :]), kwargs
    name = next(key for key, value in kwargs.items() if isinstance(value, Tensor) and value.is_floating_point())
    return args, {**kwargs, name: change(kwargs[name])}
