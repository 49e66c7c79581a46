"""A graph of products: tensors between operations, and the ways each operation can be cut. No seconds yet."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import prod

from shardwise.plan.search.problems.cuts._layouts import Layout
from shardwise.registry import closest
from shardwise.work.ops import Gemm, Pointwise

ENDS: dict[str, Layout] = {"replicated": "replicated", "tokens": "tokens", "features": "features"}
"""how the graph's inputs lie and its outputs must: what the layers before and after expect"""


@dataclass(frozen=True)
class CutTensor:
    name: str
    rows: int
    """tokens, or copies of tokens on their way to experts"""
    width: int
    experts: int = 0
    """rows are copies of tokens, each for one of so many experts; 0: rows are tokens"""

    def layouts(self, ranks: int) -> tuple[Layout, ...]:
        """Those in which it can lie on so many ranks, besides a partial sum."""
        dealt = self.rows % ranks == 0
        found: list[Layout] = ["replicated"]
        found += ["tokens"] if dealt else []
        found += ["features"] if self.width % ranks == 0 else []
        found += ["experts"] if dealt and self.experts and self.experts % ranks == 0 else []
        return tuple(found)


@dataclass(frozen=True)
class Input:
    """What a cut asks of one of its inputs."""

    value: Layout
    gradient: Layout
    """the layout in which it hands the gradient back"""
    kept: bool = True
    """the backward pass reads the value again"""


@dataclass(frozen=True)
class Output:
    value: Layout
    gradient: Layout
    """the layout in which the backward pass needs the gradient"""


@dataclass(frozen=True)
class AttentionKernel:
    """What a rank's attention kernel does."""

    scores: float
    """pairs of a query and a key it computes, all heads and sequences"""
    score_width: int
    """features each score is a product of"""
    value_width: float
    """features each score is multiplied with"""
    block: int
    """keys of one sequence"""
    groups: float
    """heads x sequences, or that many rows of queries when queries are split"""


@dataclass(frozen=True)
class CutChoice:
    """One way to cut an operation."""

    name: str
    inputs: tuple[Input, ...] = ()
    output: Output | None = None
    gemm: Gemm | None = None
    attended: AttentionKernel | None = None
    pointwise: Pointwise | None = None
    weights: float = 0.0
    """elements of weight one rank holds"""
    summed: float = 0.0
    """elements of weight gradient that every rank has a part of: they are all-reduced"""


@dataclass(frozen=True)
class CutOperation:
    name: str
    kind: str
    """matrix, attention, activation, norm, add, dispatch, combine, input or output"""
    reads: tuple[str, ...]
    """names of tensors"""
    writes: str | None
    choices: tuple[CutChoice, ...]
    about: Mapping[str, int] = field(default_factory=dict)
    """sizes that name it for people and that an execution needs"""

    @property
    def shown(self) -> bool:
        """Part of what a user calls the cut; the others follow from it."""
        return self.kind in ("matrix", "attention")


@dataclass(frozen=True)
class CutGraph:
    """Operations in an order in which they can run; inputs first, outputs last."""

    name: str
    ranks: int
    tokens: int
    tensors: Mapping[str, CutTensor]
    ops: tuple[CutOperation, ...]
    block: str = ""
    """which block of a layer it is, if one; then its operations have the names `_blocks.py` gives them"""
    notes: tuple[str, ...] = ()

    @cached_property
    def producer(self) -> dict[str, int]:
        return {op.writes: place for place, op in enumerate(self.ops) if op.writes is not None}

    @cached_property
    def consumers(self) -> dict[str, tuple[tuple[int, int], ...]]:
        """For each tensor: the operations that read it and which of their inputs it is."""
        found: dict[str, list[tuple[int, int]]] = {name: [] for name in self.tensors}
        for place, op in enumerate(self.ops):
            for slot, name in enumerate(op.reads):
                found[name].append((place, slot))
        return {name: tuple(users) for name, users in found.items()}

    @cached_property
    def is_chain(self) -> bool:
        """Every operation reads what the one before it wrote, and nothing else."""
        before = (None, *(op.writes for op in self.ops))
        return all(op.reads == (() if made is None else (made,)) for made, op in zip(before, self.ops, strict=False))

    @cached_property
    def shown(self) -> tuple[int, ...]:
        return tuple(place for place, op in enumerate(self.ops) if op.shown)

    @property
    def points(self) -> int:
        return prod(len(op.choices) for op in self.ops)

    def with_ends(self, ends: str) -> "CutGraph":
        """The same graph with its inputs and outputs held in one layout."""
        held = ENDS[ends]
        ops = [
            replace(op, choices=tuple(c for c in op.choices if c.name == held))
            if op.kind in ("input", "output")
            else op
            for op in self.ops
        ]
        if any(not op.choices for op in ops):
            raise ValueError(f"ends: {ends!r} do not divide by {self.ranks} ranks; write --ends replicated")
        return replace(self, ops=tuple(ops))

    def fixed(self, cuts: Mapping[str, str]) -> "CutGraph | None":
        """The same graph with some operations held to one choice; None where one does not have it."""
        names = [op.name for op in self.ops]
        for name in cuts:
            if name not in names:
                raise ValueError(f"cut: there is no {name!r} in {self.name}; {closest(name, names)}")
        ops = [
            replace(op, choices=tuple(c for c in op.choices if c.name == cuts[op.name])) if op.name in cuts else op
            for op in self.ops
        ]
        return None if any(not op.choices for op in ops) else replace(self, ops=tuple(ops))
