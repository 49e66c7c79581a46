"""What autograd keeps from a forward pass, by name: every storage once, parameters and named constants left out."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor


class Ledger:
    def __init__(self, parameters: Iterable[Tensor]) -> None:
        self.skipped = {p.untyped_storage().data_ptr() for p in parameters}
        self.names: dict[int, str] = {}
        self.alive: list[Tensor] = []
        """named tensors stay alive, so that no storage address is used twice"""
        self.kept: dict[int, tuple[str, int]] = {}

    def name(self, name: str, tensor: Tensor) -> None:
        self.alive.append(tensor)
        self.names[tensor.untyped_storage().data_ptr()] = name

    def pack(self, tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        where = storage.data_ptr()
        if where not in self.skipped:
            self.alive.append(tensor)
            self.kept[where] = (f"unnamed {tensor.dtype} {tuple(tensor.shape)}", storage.nbytes())
        return tensor

    def bytes(self) -> dict[str, int]:
        total: dict[str, int] = defaultdict(int)
        for where, (shape, size) in self.kept.items():
            # an operation's own output is named after it was kept
            name = self.names.get(where, shape)
            if name != "constant":
                total[name] += size
        return dict(total)


_open: list[Ledger] = []


def named(name: str, tensor: Tensor) -> Tensor:
    """Gives the tensor's storage a name in the open ledger; a later name wins."""
    if _open:
        _open[-1].name(name, tensor)
    return tensor


@contextmanager
def keeping(module: torch.nn.Module) -> Iterator[Ledger]:
    ledger = Ledger([*module.parameters(), *module.buffers()])
    _open.append(ledger)
    try:
        with torch.autograd.graph.saved_tensors_hooks(ledger.pack, lambda tensor: tensor):
            yield ledger
    finally:
        _open.pop()
