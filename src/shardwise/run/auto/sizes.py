"""Whole numbers in the user's modules that count what a cut shares out: the smallest set that makes the cut right."""

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import chain, combinations, islice

from msgspec.structs import replace
from torch import nn

from shardwise.run.auto.plan import ProductCut, Size

MOST_TOGETHER = 3
MOST_TRIED = 600
HEADS = "head"
"""of a configuration only numbers with this in their name are tried: it is shared by all that a model is made of"""
NEVER = frozenset(
    {"in_features", "out_features", "nf", "nx", "layer_idx", "layer_id", "layer_index", "normalized_shape"}
)


def fitting(
    cut: ProductCut, block: nn.Module, ranks: int, fits: Callable[[ProductCut], str]
) -> tuple[ProductCut | None, str]:
    """The cut with what it needs beside it; or none, and why not as it was."""
    why = fits(cut)
    if not why:
        return cut, ""
    numbers = list(_numbers(block, cut, ranks))
    for tried in islice(_ways(cut, numbers), MOST_TRIED):
        if not fits(tried):
            return tried, ""
    return None, why


def _ways(cut: ProductCut, numbers: list[Size]) -> Iterator[ProductCut]:
    """What changes least first; fitting while it runs costs time in every step: it comes behind one or two numbers."""

    def sets(counts: range) -> Iterator[tuple[Size, ...]]:
        return chain.from_iterable(combinations(numbers, count) for count in counts)

    for chosen in sets(range(1, 3)):
        yield replace(cut, sizes=chosen)
    for flat in (False, True):
        for chosen in sets(range(2)):
            yield replace(cut, sizes=chosen, fitted=True, flat=flat)
    for chosen in sets(range(3, MOST_TOGETHER + 1)):
        yield replace(cut, sizes=chosen)
    for chosen in sets(range(2, MOST_TOGETHER + 1)):
        yield replace(cut, sizes=chosen, fitted=True)


def _numbers(block: nn.Module, cut: ProductCut, ranks: int) -> Iterator[Size]:
    around = block.get_submodule(cut.around)
    parts = _parts(cut, ranks)
    for name, module in around.named_modules(prefix=cut.around):
        for attribute, value in vars(module).items():
            yield from (Size(module=name, name=attribute, value=n) for n in _divided(attribute, value, parts))
        config = getattr(module, "config", None)
        for attribute, value in vars(config).items() if hasattr(config, "__dict__") else ():
            if HEADS in attribute:
                named = f"config.{attribute}"
                yield from (Size(module=name, name=named, value=n) for n in _divided(attribute, value, parts))


def _parts(cut: ProductCut, ranks: int) -> tuple[int, ...]:
    """Into how many parts numbers may fall: as many as ranks; fewer where several hold the same outputs."""
    held = [Counter(index for own in column.indices for index in own).values() for column in cut.columns]
    together = {copies for counts in held for copies in counts if 1 < copies < ranks and ranks % copies == 0}
    return (ranks, *sorted(ranks // copies for copies in together))


def _divided(name: str, value: object, parts: tuple[int, ...]) -> Iterator[int]:
    if name.startswith("_") or name in NEVER or isinstance(value, bool) or not isinstance(value, int):
        return
    yield from (value // each for each in parts if value > 1 and value % each == 0)
