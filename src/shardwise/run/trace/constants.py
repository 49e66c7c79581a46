"""Small tensors whose values follow from the script alone (`torch.linspace(0, 0.1, 12)`, what is computed from such):
each keeps a twin with values, so that code which asks for them gets the answer a GPU would give."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

from shardwise.run.runtime.private import is_fake, unheard_and_real

TWIN = "_twin"
LARGEST = 2**16
"""elements of a tensor whose values are worth following"""
MAKERS = frozenset({"arange", "linspace", "logspace", "zeros", "ones", "full", "eye", "scalar_tensor", "tril_indices",
                    "triu_indices"})  # fmt: skip
DRAWN = frozenset({"randint", "randperm"})
"""places in data that a script draws: any are as good as others"""
UNCERTAIN = frozenset({"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "resize_", "set_"})


class Constants:
    """Twins, and the storages of twins that something unknown was written into."""

    def __init__(self) -> None:
        self._stale: set[int] = set()

    def twin(self, tensor: Tensor) -> Tensor | None:
        """A tensor that has values is its own."""
        if not is_fake(tensor):
            return tensor
        found: Tensor | None = getattr(tensor, TWIN, None)
        return None if found is None or found.untyped_storage()._cdata in self._stale else found

    def follow(self, func: Any, args: Any, kwargs: dict[str, Any], out: Any, written: Sequence[Tensor]) -> None:
        """After a call: its result is known if all that it reads is."""
        tensors = [leaf for leaf in tree_leaves([args, kwargs]) if isinstance(leaf, Tensor)]
        results = [leaf for leaf in tree_leaves(out) if isinstance(leaf, Tensor)]
        places = func._opname in DRAWN and all(t.dim() < 2 for t in results)
        if tensors or places or func._opname in MAKERS:
            # where tensors have values, nothing needs a twin
            small = any(map(is_fake, results)) and sum(t.numel() for t in results) <= LARGEST
            if small and (places or self._certain(func)) and all(self.twin(t) is not None for t in tensors):
                self._mark(results, self._run(func, args, kwargs))
                return
        for tensor in filter(is_fake, written):
            twin = self.twin(tensor)
            if twin is not None:
                self._stale.add(twin.untyped_storage()._cdata)

    def answer(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """What the call would give, or None if the values are not known; tensors come back without values."""
        tensors = [leaf for leaf in tree_leaves([args, kwargs]) if isinstance(leaf, Tensor)]
        if not tensors or any(self.twin(t) is None for t in tensors):
            return None
        found = self._run(func, args, kwargs)
        if not any(isinstance(leaf, Tensor) for leaf in tree_leaves(found)):
            return found
        made = tree_map(lambda t: torch.empty_strided(t.shape, t.stride(), dtype=t.dtype), found)
        self._mark(tree_leaves(made), found)
        return made

    def _certain(self, func: Any) -> bool:
        return func._opname not in UNCERTAIN and torch.Tag.nondeterministic_seeded not in func.tags

    def _run(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        def real(leaf: Any) -> Any:
            return self.twin(leaf) if isinstance(leaf, Tensor) else leaf

        with unheard_and_real(), torch.no_grad():
            return func(*tree_map(real, args), **tree_map(real, kwargs))

    def _mark(self, results: Sequence[Any], twins: Any) -> None:
        for made, twin in zip(results, tree_leaves(twins), strict=True):
            if isinstance(made, Tensor):
                setattr(made, TWIN, twin)
