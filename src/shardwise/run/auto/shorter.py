"""A batch of fewer samples and tokens, on which blocks are tried, and what a plan counted on it for the whole one."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

from shardwise.run.auto.plan import AutoPlan, CutKind, ProductCut
from shardwise.run.auto.watch import samples_of

FEW_TOKENS = (32, 128)
"""from which a sequence keeps so many and less than twice as many: what is left over stays the same, so that it is
shared as evenly as the whole"""
PROOF_SAMPLES, PROOF_TOKENS = 16, 64
"""of a proof on a narrow copy: four ranks with four micro-batches each share so many samples"""
FEW_SAMPLES = 2
FOR_EXPERTS = 8
"""samples where there are experts, which ranks of more than one sample may share out"""


@dataclass(frozen=True)
class Extent:
    """Samples, and the length of their second axis; 0 where no axis of the batch is one of tokens."""

    samples: int
    tokens: int

    @property
    def rows(self) -> int:
        """Tokens of all samples."""
        return self.samples * max(self.tokens, 1)


def extent_of(batch: Any) -> Extent:
    """Tokens: the second axis of most tensors of words (samples, tokens) or of features (samples, tokens, width)."""
    samples = samples_of(batch)
    lengths = Counter(x.shape[1] for x in tree_leaves(batch) if _may_be_tokens(x, samples))
    return Extent(samples, lengths.most_common(1)[0][0] if lengths else 0)


def _may_be_tokens(x: Any, samples: int) -> bool:
    if not isinstance(x, Tensor) or x.dim() not in (2, 3) or x.shape[0] != samples:
        return False
    return x.dim() == 3 or not x.is_floating_point()


def shorter(batch: Any, experts: bool) -> Iterator[tuple[Any, Extent]]:
    """The shortest first; the last one has all tokens."""
    whole = extent_of(batch)
    samples = next(n for n in range(FOR_EXPERTS if experts else FEW_SAMPLES, 0, -1) if whole.samples % n == 0)
    for few in FEW_TOKENS:
        tokens = few + whole.tokens % few
        if tokens < whole.tokens:
            yield _cut(batch, whole, Extent(samples, tokens)), Extent(samples, tokens)
    yield _cut(batch, whole, Extent(samples, whole.tokens)), Extent(samples, whole.tokens)


def short_batches(batches: list[Any]) -> list[Any]:
    """For a proof on a narrow copy."""
    whole = extent_of(batches[0])
    samples = PROOF_SAMPLES if whole.samples % PROOF_SAMPLES == 0 else whole.samples
    tokens = min(whole.tokens, PROOF_TOKENS + whole.tokens % PROOF_TOKENS)
    return [_cut(batch, whole, Extent(samples, tokens)) for batch in batches]


def _cut(batch: Any, whole: Extent, to: Extent) -> Any:
    less = whole.tokens - to.tokens

    def cut(x: Any) -> Any:
        if not isinstance(x, Tensor) or not x.dim() or x.shape[0] != whole.samples:
            return x
        x = x[: to.samples]
        # inputs may be one longer than targets, or the other way round
        if less and _may_be_tokens(x, to.samples) and abs(x.shape[1] - whole.tokens) <= 1:
            x = x[:, : x.shape[1] - less]
        return x.contiguous()

    return tree_map(cut, batch)


def for_the_whole(plan: AutoPlan, have: Extent, want: Extent) -> AutoPlan:
    """With the elements that a batch of the whole extent has. `have`: the one on which they were counted."""
    tokens = plan.tokens + want.tokens - have.tokens if plan.tokens else 0
    times = want.samples / have.samples * (tokens / plan.tokens if plan.tokens else 1.0)

    def more(count: int) -> int:
        return round(count * times)

    def cut(each: ProductCut) -> ProductCut:
        entries = tuple((more(count) if grows else count, grows) for count, grows in each.entries)
        return replace(
            each, entries=entries, row_elements=more(each.row_elements), totals=tuple(map(more, each.totals))
        )

    def kind(each: CutKind) -> CutKind:
        homes = tuple(replace(h, hidden=more(h.hidden), chosen=more(h.chosen)) for h in each.homes)
        joins = {name: more(size) for name, size in each.joins.items()}
        return replace(each, cuts=tuple(map(cut, each.cuts)), homes=homes, joins=joins)

    words = plan.vocabulary
    words = replace(words, head_inputs=tuple(map(more, words.head_inputs)),
                    table_outputs=tuple(map(more, words.table_outputs)),
                    head_outputs=tuple(map(more, words.head_outputs)))  # fmt: skip
    attention = tuple((more(keys), more(values)) for keys, values in plan.attention)
    handed = tuple(
        replace(each, elements=more(each.elements) if each.grows else each.elements,
                shape=tuple(_as_long(each.shape, each.grows, have, want, tokens))) for each in plan.handed
    )  # fmt: skip
    return replace(plan, kinds=tuple(map(kind, plan.kinds)), vocabulary=words, samples=want.samples, tokens=tokens,
                   boundary=more(plan.boundary), attention=attention, handed=handed)  # fmt: skip


def _as_long(shape: tuple[int, ...], grows: bool, have: Extent, want: Extent, tokens: int) -> Iterator[int]:
    for axis, size in enumerate(shape):
        yield size // have.samples * want.samples if grows and axis == 0 else tokens if size == have.tokens else size
