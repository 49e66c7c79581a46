"""Bytes autograd keeps for the backward pass, while a step runs: by kind, now and at the fullest moment.

Each storage counts once, however many operations keep it; parameters and integers (tokens, places) do not count.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from shardwise.run.runtime.net.marks import kind_now
from shardwise.run.runtime.parallel.products import Later

KINDS = ("activations", "logits", "working")


class TrackedTensor:
    """A tensor in autograd's hands; it is given back when the graph lets go of it."""

    def __init__(self, tensor: Tensor, free: Callable[[], None]) -> None:
        self.tensor, self._free = tensor, free

    def __del__(self) -> None:
        self._free()


@dataclass
class Storage:
    size: int
    kind: str = ""
    """what it counts as now"""
    holders: int = 0


class Tracker:
    def __init__(self) -> None:
        self.now: Counter[str] = Counter()
        self.peak: Counter[str] = Counter()
        self._held: dict[int, Storage] = {}

    @contextmanager
    def watching(self, later: Later) -> Iterator[None]:
        """`later`: weight gradients that are put off keep tensors too."""
        later.watch = self._pack
        try:
            with torch.autograd.graph.saved_tensors_hooks(self._pack, lambda kept: kept.tensor):
                yield
        finally:
            later.watch = None

    def _pack(self, tensor: Tensor) -> TrackedTensor:
        base = tensor._base if tensor._base is not None else tensor
        if isinstance(base, nn.Parameter) or not tensor.is_floating_point():
            return TrackedTensor(tensor, lambda: None)
        storage = tensor.untyped_storage()
        # not its address: a tensor without values has none
        key = storage._cdata
        held = self._held.setdefault(key, Storage(storage.nbytes()))
        held.holders += 1
        if held.kind in ("", "working"):
            # what a repeated forward made counts as kept once a put-off weight gradient waits for it
            self._move(held, kind_now())

        def free() -> None:
            held.holders -= 1
            if not held.holders:
                del self._held[key]
                self._move(held, "")

        return TrackedTensor(tensor, free)

    def _move(self, held: Storage, kind: str) -> None:
        if held.kind:
            self.now[held.kind] -= held.size
        held.kind = kind
        if kind:
            self.now[kind] += held.size
            self.peak[kind] = max(self.peak[kind], self.now[kind])
