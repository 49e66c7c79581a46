"""Which products of a block feed which others, feature by feature: asked of the gradients of one run."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from shardwise.run.auto.plan import Column, ExpertStack
from shardwise.run.auto.trial import Run

Indices = tuple[tuple[int, ...], ...]


@dataclass
class CutCandidate:
    """A row product whose inputs, in equal shares, come from separate outputs of the column products."""

    row: str
    columns: tuple[Column, ...]
    parameters: int
    shared: tuple[str, ...] = ()
    """products whose outputs reach shares unevenly: they could not be cut"""
    stacks: tuple[ExpertStack, ...] = ()
    """other weights of which each rank's share needs its own rows"""
    sums: tuple[str, ...] = ()
    """products between, whose sum all ranks need"""


def candidates(run: Run, ranks: int, others: list[Run]) -> list[CutCandidate]:
    """The largest first. `others`: runs on other inputs, for outputs that an activation hid in the first."""
    once = [name for name, count in run.counts.items() if count == 1]
    found = [_candidate(run, row, once[:place], ranks, others) for place, row in enumerate(once) if place]
    return sorted((each for each in found if each is not None), key=lambda each: -each.parameters)


def needed_by_all(run: Run, row: str, ranks: int) -> list[str]:
    """Products whose outputs reach every rank's share of what goes into the row, the last first."""
    once = [name for name, count in run.counts.items() if count == 1]
    earlier = [name for name in once[: once.index(row)] if run.outputs[name].requires_grad]
    if run.inputs[row].shape[-1] % ranks or not run.inputs[row].requires_grad:
        return []
    return [name for name, marks in reversed(_reached(run, row, earlier, ranks).items()) if bool(marks.all())]


def with_sum(run: Run, row: str, summed: str, ranks: int, others: list[Run]) -> CutCandidate | None:
    """The one that ends in `row`, where `summed` is cut by rows too: in these runs its output depends on nothing. Its
    input must be fed by the shares that feed the row."""
    once = [name for name, count in run.counts.items() if count == 1]
    found = _candidate(run, row, once[: once.index(row)], ranks, others)
    if found is None or run.inputs[summed].shape[-1] % ranks or not run.inputs[summed].requires_grad:
        return None
    columns = {each.module: each.indices for each in found.columns}
    earlier = [name for name in once[: once.index(summed)] if run.outputs[name].requires_grad]
    fed = {name: marks for name, marks in _reached(run, summed, earlier, ranks).items() if bool(marks.any())}
    for name, marks in fed.items():
        if not all(set(a) <= set(b) for a, b in zip(_own(marks), columns.get(name, [()] * ranks), strict=True)):
            return None
    return replace(found, sums=(summed,)) if fed else None


def _candidate(run: Run, row: str, before: list[str], ranks: int, others: list[Run]) -> CutCandidate | None:
    into = run.inputs[row]
    if not into.requires_grad or into.shape[-1] % ranks:
        return None
    earlier = [name for name in before if run.outputs[name].requires_grad]
    reached = _reached(run, row, earlier, ranks)
    for other in others:
        if not any(_dead(marks) for marks in reached.values()):
            break
        again = _reached(other, row, earlier, ranks)
        reached = {name: marks | again[name] for name, marks in reached.items()}
    columns, shared = [], []
    for name, marks in reached.items():
        if _even(marks):
            columns.append(Column(module=name, indices=_own(marks)))
        elif bool(marks.any()) and not bool(marks.all()):
            shared.append(name)
    if not columns:
        return None
    modules = [run.block.get_submodule(each) for each in (row, *(column.module for column in columns))]
    size = sum(p.numel() for m in modules for p in m.parameters())
    stacks = tuple(_stacks(run, row, ranks, {row, *before}))
    return CutCandidate(row, tuple(columns), size, tuple(shared), stacks)


def _even(marks: Tensor) -> bool:
    """Every rank needs as many, none is needed by nobody, and not all by all."""
    return bool(marks.any(0).all()) and not bool(marks.all()) and len(set(marks.sum(1).tolist())) == 1


def _own(marks: Tensor) -> Indices:
    return tuple(tuple(m.nonzero().flatten().tolist()) for m in marks)


def _stacks(run: Run, row: str, ranks: int, products: set[str]) -> Iterator[ExpertStack]:
    """Weights of no product that runs, of which each rank's share of the row product's input needs some rows."""
    own = {f"{name}.{weight}" for name in products for weight in ("weight", "bias")}
    named = {n: p for n, p in run.block.named_parameters() if n not in own and p.dim() and p.shape[0] >= ranks}
    marks = _marked(run.inputs[row], list(named.values()), ranks)
    for name, each in zip(named, marks, strict=True):
        if _even(each):
            yield ExpertStack(parameter=name, axis=0, indices=_own(each))


def _dead(marks: Tensor) -> bool:
    """Some outputs reach nothing while others do."""
    hits = marks.any(0)
    return bool(hits.any()) and not bool(hits.all())


def _reached(run: Run, row: str, earlier: list[str], ranks: int) -> dict[str, Tensor]:
    """For each earlier product a table [rank, output]: does the output reach the rank's share?"""
    return dict(zip(earlier, _marked(run.inputs[row], [run.outputs[n] for n in earlier], ranks, axis=-1), strict=True))


def _marked(into: Tensor, asked: list[Tensor], ranks: int, axis: int = 0) -> list[Tensor]:
    """Of each tensor a table [rank, place along the axis]: does it reach the rank's share of what goes into the row?"""
    generator = torch.Generator().manual_seed(0)
    width = into.shape[-1] // ranks
    rows: list[list[Tensor]] = [[] for _ in asked]
    for rank in range(ranks if asked else 0):
        share = into[..., rank * width : (rank + 1) * width]
        weights = torch.randn(share.shape, generator=generator, dtype=share.dtype)
        gradients = torch.autograd.grad((share * weights).sum(), asked, retain_graph=True, allow_unused=True)
        for own, tensor, gradient in zip(rows, asked, gradients, strict=True):
            given = torch.zeros_like(tensor) if gradient is None else gradient
            own.append((given != 0).movedim(axis, 0).flatten(1).any(1) if given.dim() > 1 else given != 0)
    return [torch.stack(each) for each in rows]
