"""Every storage of the process while it lives: when it came, how large it is, when it went."""

import weakref
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from shardwise.run.trace.events import TensorStorage


class Storages:
    """Storages are found by the address of torch's own object; a weak reference tells when it is gone."""

    def __init__(self) -> None:
        self.changes: list[tuple[TensorStorage, int]] = []
        self._live: dict[int, tuple[Any, TensorStorage]] = {}

    def held(self, tensor: Tensor, kind: str) -> TensorStorage:
        """The tensor's storage; one not seen before is of this kind."""
        storage = tensor.untyped_storage()
        key, size = storage._cdata, storage.nbytes()
        found = self._live.get(key)
        if found is not None:
            held = found[1]
            if held.size != size:
                self._change(held, size)
            return held
        held = TensorStorage(kind, 0)
        self._live[key] = (weakref.ref(storage, lambda _: self._gone(key)), held)
        self._change(held, size)
        return held

    def knows(self, tensor: Tensor) -> bool:
        return tensor.untyped_storage()._cdata in self._live

    def resized(self, storage: torch.UntypedStorage) -> None:
        found = self._live.get(storage._cdata)
        if found is not None:
            self._change(found[1], storage.nbytes())

    def label(self, tensors: Iterable[Tensor], kind: str) -> None:
        for tensor in tensors:
            self.held(tensor, kind).kind = kind

    def begin(self) -> None:
        """From here on a step is recorded: its first changes are what is there now."""
        self.changes = [(held, held.size) for _, held in self._live.values() if held.size]
        for held, _ in self.changes:
            if held.kind in ("activations", "working"):
                held.kind = "other"

    def _gone(self, key: int) -> None:
        _, held = self._live.pop(key)
        self._change(held, 0)

    def _change(self, held: TensorStorage, size: int) -> None:
        if size != held.size:
            self.changes.append((held, size - held.size))
            held.size = size
