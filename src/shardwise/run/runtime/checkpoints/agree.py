"""What all ranks must see alike: one decides for all, or all say whether it went well. Over gloo: it is about files."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeVar

import torch.distributed as dist

Value = TypeVar("Value")


class AgreedRefusal(ValueError):
    """The same on every rank: the first one says it."""


class Agreement:
    """All ranks make one at the same place; `group` is None where this process is alone."""

    def __init__(self, wait: timedelta) -> None:
        self.wait_s = wait.total_seconds()
        self.group: Any = dist.new_group(backend="gloo", timeout=wait) if dist.is_initialized() else None
        self.rank = dist.get_rank() if self.group is not None else 0
        self.ranks = dist.get_world_size() if self.group is not None else 1

    def by_first(self, decide: Callable[[], Value]) -> Value:
        """The first rank's answer, or its refusal, on all ranks."""
        answer: list[Any] = [None, ""]
        if self.rank == 0:
            try:
                answer[0] = decide()
            except (ValueError, OSError) as problem:
                answer[1] = str(problem)
        if self.group is not None:
            dist.broadcast_object_list(answer, src=0, group=self.group)
        if answer[1]:
            raise AgreedRefusal(answer[1])
        return answer[0]  # type: ignore[no-any-return]

    def problems(self, do: Callable[[], object]) -> dict[int, str]:
        """What went wrong on which rank, known to all; other errors than a file's or a value's pass through."""
        mine = ""
        try:
            do()
        except (ValueError, OSError) as problem:
            mine = _reason(problem)
        told: list[Any] = [mine]
        if self.group is not None:
            told = [None] * self.ranks
            dist.all_gather_object(told, mine, group=self.group)
        return {rank: text for rank, text in enumerate(told) if text}

    def meet(self) -> None:
        if self.group is not None:
            dist.barrier(group=self.group)


def _reason(problem: Exception) -> str:
    return (problem.strerror if isinstance(problem, OSError) else None) or str(problem) or type(problem).__name__
