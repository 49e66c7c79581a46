"""A loss averaged over tokens whose number differs between samples: sums and counts are added over the ranks.

The mean of the ranks' own means is another number: a rank with few tokens would count as much as one with many.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.utils._pytree import tree_leaves

from shardwise.run.auto.plan import AutoPlan
from shardwise.run.runtime.private import after_backward, in_backward, replace_everywhere, swapped_everywhere

COUNT_BYTES = 8
"""of the message that adds counts"""
IGNORED = -100
"""the label that torch leaves out unless another is named"""
AVERAGED = ("cross_entropy", "nll_loss")


def token_mean(
    original: Callable[..., Tensor],
    group: Any,
    ours: Callable[[], bool] = lambda: True,
    goes_back: Callable[[Tensor], None] = lambda _: None,
) -> Callable[..., Tensor]:
    """The function of torch with the mean over the tokens of all ranks of the group, as many times larger as there are
    ranks: gradients are means over them. `ours`: the loss is one of the model that is split; `goes_back` is called when
    its backward pass begins."""

    def called(
        input: Tensor, target: Tensor, weight: Tensor | None = None, size_average: Any = None, ignore_index: int = -100,
        reduce: Any = None, reduction: str = "mean", **rest: Any,
    ) -> Tensor:  # fmt: skip
        plain = (weight, size_average, ignore_index, reduce)
        if not (ours() and input.requires_grad and averages(target, size_average, reduce, reduction)):
            return original(input, target, *plain, reduction, **rest)
        count = counted_tokens(target, weight, ignore_index)
        dist.all_reduce(count, group=group)
        total = original(input, target, weight, None, ignore_index, None, "sum", **rest)
        total.register_hook(goes_back)  # type: ignore[no-untyped-call]
        return total * (dist.get_world_size(group) / count).to(total.dtype)

    return called


def averages(target: Tensor, size_average: Any, reduce: Any, reduction: str) -> bool:
    return reduction == "mean" and size_average is reduce is None and not target.is_floating_point()


def counted_tokens(target: Tensor, weight: Tensor | None, ignored: int) -> Tensor:
    """By how much torch divides."""
    known = target[target != ignored]
    return (torch.ones_like(known) if weight is None else weight[known]).double().sum()


def mean_count(count: Tensor, parts: int) -> Tensor:
    """Of a program that divides a sum by a count: the mean of the counts of so many ranks."""
    if parts == 1:
        return count
    total = count.double()
    dist.all_reduce(total)
    return total / dist.get_world_size()


def uneven(target: Tensor, samples: int, ignored: int = IGNORED) -> bool:
    """Samples do not all have as many labels that count."""
    left_out = target == ignored
    if target.numel() % max(samples, 1):
        return bool(left_out.any())
    return len(set(left_out.reshape(samples, -1).sum(1).tolist())) > 1


def uneven_labels(batch: Any, samples: int) -> bool:
    """Of a batch that holds its labels."""
    whole = (x for x in tree_leaves(batch) if isinstance(x, Tensor) and x.dtype is torch.int64)
    return any(uneven(x, samples) for x in whole if x.dim() and x.shape[0] == samples)


def count_over_ranks(model: nn.Module, plan: AutoPlan, ranks: DeviceMesh) -> None:
    """From now on, where the plan says so, torch's means are over the tokens of all these ranks: of losses behind a
    call of the model, until a backward pass has ended. Others may be of models that are not split."""
    called: list[bool] = []

    def begun(*_: Any) -> None:
        if torch.is_grad_enabled() and not in_backward():
            called[:] = [True]

    for root in plan.roots if plan.token_means and ranks.size() > 1 else ():
        model.get_submodule(root).register_forward_pre_hook(begun)
    for name in AVERAGED if plan.token_means and ranks.size() > 1 else ():
        original = getattr(F, name)
        counted = token_mean(original, ranks.get_group(), lambda: bool(called), lambda _: after_backward(called.clear))
        replace_everywhere(original, counted)


@contextmanager
def means_over(plan: AutoPlan, ranks: DeviceMesh) -> Iterator[None]:
    """Inside, where the plan says so, torch's means are over the tokens of all these ranks."""
    with ExitStack() as stack:
        for name in AVERAGED if plan.token_means and ranks.size() > 1 else ():
            original = getattr(F, name)
            stack.enter_context(swapped_everywhere(original, token_mean(original, ranks.get_group())))
        yield


@contextmanager
def token_means_seen(samples: Callable[[], int]) -> Iterator[list[bool]]:
    """Of the means that are taken inside: whether each counts some of so many samples more than others."""
    found: list[bool] = []
    inside = False

    def looking(original: Callable[..., Tensor]) -> Callable[..., Tensor]:
        def called(
            input: Tensor, target: Tensor, weight: Tensor | None = None, size_average: Any = None,
            ignore_index: int = -100, reduce: Any = None, reduction: str = "mean", **rest: Any,
        ) -> Tensor:  # fmt: skip
            nonlocal inside
            # a mode over all functions calls it again by its name
            if not inside and input.requires_grad and averages(target, size_average, reduce, reduction):
                found.append(weight is not None or uneven(target, samples(), ignore_index))
            inside, outer = True, inside
            try:
                return original(input, target, weight, size_average, ignore_index, reduce, reduction, **rest)
            finally:
                inside = outer

        return called

    with ExitStack() as stack:
        for name in AVERAGED:
            original = getattr(F, name)
            stack.enter_context(swapped_everywhere(original, looking(original)))
        yield found
