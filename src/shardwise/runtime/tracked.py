"""Bytes autograd keeps for the backward pass, while a step runs: by kind, now and at the fullest moment.

Each storage counts once, however many operations keep it; parameters and integers (tokens, places) do not count.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from shardwise.runtime.net.marks import kind_now
from shardwise.runtime.parallel.products import Later

KINDS = ("activations", "logits", "working")


class Kept:
    """A tensor in autograd's hands; it is given back when the graph lets go of it."""

    def __init__(self, tensor: Tensor, free: Callable[[], None]) -> None:
        self.tensor, self._free = tensor, free

    def __del__(self) -> None:
        self._free()


class Tracker:
    def __init__(self) -> None:
        self.now: Counter[str] = Counter()
        self.peak: Counter[str] = Counter()
        self._holders: Counter[int] = Counter()

    @contextmanager
    def watching(self, later: Later) -> Iterator[None]:
        """`later`: weight gradients that are put off keep tensors too."""
        later.watch = self._pack
        try:
            with torch.autograd.graph.saved_tensors_hooks(self._pack, lambda kept: kept.tensor):
                yield
        finally:
            later.watch = None

    def _pack(self, tensor: Tensor) -> Kept:
        base = tensor._base if tensor._base is not None else tensor
        if isinstance(base, nn.Parameter) or not tensor.is_floating_point():
            return Kept(tensor, lambda: None)
        storage, kind = tensor.untyped_storage(), kind_now()
        key, size = storage.data_ptr(), storage.nbytes()
        if not self._holders[key]:
            self.now[kind] += size
            self.peak[kind] = max(self.peak[kind], self.now[kind])
        self._holders[key] += 1

        def free() -> None:
            self._holders[key] -= 1
            if not self._holders[key]:
                del self._holders[key]
                self.now[kind] -= size

        return Kept(tensor, free)
