"""Where each parameter lies in the one long row a strategy works on."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any


@dataclass(frozen=True)
class ParameterLayout:
    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]

    @cached_property
    def bounds(self) -> tuple[tuple[int, int], ...]:
        found, start = [], 0
        for shape in self.shapes:
            found.append((start, start + prod(shape)))
            start += prod(shape)
        return tuple(found)

    @cached_property
    def d(self) -> int:
        return self.bounds[-1][1] if self.bounds else 0

    @classmethod
    def of(cls, model: Any) -> "ParameterLayout":
        """The trainable parameters of a module, in its order."""
        named = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
        return cls.named(((name, tuple(p.shape)) for name, p in named))

    @classmethod
    def named(cls, entries: Iterable[tuple[str, tuple[int, ...]]]) -> "ParameterLayout":
        listed = list(entries)
        if not listed:
            raise ValueError("model: it has no trainable parameter; nothing would be communicated")
        return cls(tuple(name for name, _ in listed), tuple(shape for _, shape in listed))

    @classmethod
    def flat(cls, d: int) -> "ParameterLayout":
        """One vector of d numbers: enough to cost whatever does not look at matrices."""
        if d < 1:
            raise ValueError(f"shapes: {d} numbers; write 1 or more")
        return cls(("all",), ((d,),))
