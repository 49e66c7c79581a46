"""Which products of a block feed which others, feature by feature: asked of the gradients of one run."""

from dataclasses import dataclass

import torch
from torch import Tensor

from shardwise.run.auto.plan import Column
from shardwise.run.auto.trial import Run


@dataclass
class CutCandidate:
    """A row product whose inputs, in equal shares, come from separate outputs of the column products."""

    row: str
    columns: tuple[Column, ...]
    parameters: int
    shared: tuple[str, ...] = ()
    """products whose outputs reach shares unevenly: they could not be cut"""


def candidates(run: Run, ranks: int, others: list[Run]) -> list[CutCandidate]:
    """The largest first. `others`: runs on other inputs, for outputs that an activation hid in the first."""
    once = [name for name, count in run.counts.items() if count == 1]
    found = [_candidate(run, row, once[:place], ranks, others) for place, row in enumerate(once) if place]
    return sorted((each for each in found if each is not None), key=lambda each: -each.parameters)


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
    for name in earlier:
        marks = reached[name]
        hits = marks.sum(0)
        if not bool(hits.any()) or bool(marks.all()):
            continue
        sizes = marks.sum(1)
        if bool(hits.all()) and len(set(sizes.tolist())) == 1:
            columns.append(Column(module=name, indices=tuple(tuple(m.nonzero().flatten().tolist()) for m in marks)))
        else:
            shared.append(name)
    if not columns:
        return None
    modules = [run.block.get_submodule(each) for each in (row, *(column.module for column in columns))]
    return CutCandidate(row, tuple(columns), sum(p.numel() for m in modules for p in m.parameters()), tuple(shared))


def _dead(marks: Tensor) -> bool:
    """Some outputs reach nothing while others do."""
    hits = marks.any(0)
    return bool(hits.any()) and not bool(hits.all())


def _reached(run: Run, row: str, earlier: list[str], ranks: int) -> dict[str, Tensor]:
    """For each earlier product a table [rank, output]: does the output reach the rank's share?"""
    into = run.inputs[row]
    generator = torch.Generator().manual_seed(0)
    width = into.shape[-1] // ranks
    rows: dict[str, list[Tensor]] = {name: [] for name in earlier}
    outputs = [run.outputs[name] for name in earlier]
    for rank in range(ranks):
        share = into[..., rank * width : (rank + 1) * width]
        weights = torch.randn(share.shape, generator=generator, dtype=share.dtype)
        gradients = torch.autograd.grad((share * weights).sum(), outputs, retain_graph=True, allow_unused=True)
        for name, output, gradient in zip(earlier, outputs, gradients, strict=True):
            given = torch.zeros_like(output) if gradient is None else gradient
            rows[name].append((given != 0).flatten(0, -2).any(0))
    return {name: torch.stack(marks) for name, marks in rows.items()}
