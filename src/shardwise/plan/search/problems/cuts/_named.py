"""Cuts that have a name: the talk's two, Megatron's, the book's, DeepSpeed Ulysses, and the two that cut nothing.

Talk: 'Distributed training for LLMs' (its W·x cuts rows where Megatron's X·W cuts columns). Megatron: arXiv:1909.08053,
with sequence parallelism arXiv:2205.05198. Ulysses: arXiv:2309.14509. Book: T. Pasanen, 'Deep Learning for Network
Engineers', chapter 8.
"""

from dataclasses import dataclass

from shardwise.plan.search.problems.cuts._graph import CutGraph

NARROW = ("q down", "kv down", "k rotary", "router")
"""products Megatron leaves whole: down projections of latent attention, and the router"""
SECOND = ("o", "down", "expert down", "shared down")
"""products whose inputs are already split"""


@dataclass(frozen=True)
class NamedCut:
    name: str
    cuts: dict[str, str]
    ends: str | None = None
    """None: whichever of those asked for is best"""


def named_cuts(graph: CutGraph) -> list[NamedCut]:
    matrices = [op.name for op in graph.ops if op.kind == "matrix"]
    found = _of_block(graph) if graph.block else _of_chain(matrices) if graph.is_chain else []
    dealt = {op.name: "tokens" for op in graph.ops if op.shown}
    scores = [op for op in graph.ops if op.kind == "attention"]
    apart = {op.name: "sequences" for op in scores if any(c.name == "sequences" for c in op.choices)}
    name = "data parallel" if len(apart) == len(scores) else "tokens dealt, K V gathered"
    whole = {op.name: "whole" for op in graph.ops if op.shown}
    return [*found, NamedCut(name, dealt | apart), NamedCut("no cut", whole)]


def _of_chain(matrices: list[str]) -> list[NamedCut]:
    found = []
    if len(matrices) == 3:
        found = [
            NamedCut("talk's Partition 1", dict(zip(matrices, ("column", "row", "row"), strict=True))),
            NamedCut("talk's Partition 2", dict(zip(matrices, ("column", "column", "row"), strict=True))),
        ]
    if len(matrices) > 1:
        pairs = {name: "row" if place % 2 else "column" for place, name in enumerate(matrices)}
        found.append(NamedCut("Megatron column-row", pairs))
    return found


def _of_block(graph: CutGraph) -> list[NamedCut]:
    found = [
        NamedCut("Megatron", _megatron(graph, "replicated"), "replicated"),
        NamedCut("Megatron + SP", _megatron(graph, "tokens"), "tokens"),
    ]
    if any(op.kind == "attention" for op in graph.ops):
        gathered = {op.name: "gathered" for op in graph.ops if op.kind == "attention"}
        found.append(NamedCut("book: Q, K gathered", _megatron(graph, "replicated") | gathered, "replicated"))
        heads = {op.name: "heads" if op.kind == "attention" else "tokens" for op in graph.ops if op.shown}
        found.append(NamedCut("Ulysses", heads, "tokens"))
    experts = {op.name: "experts" for op in graph.ops if op.name.startswith("expert ")}
    if experts:
        found.append(NamedCut("expert parallel", _megatron(graph, "tokens") | experts | _exchanged(graph), "tokens"))
    return found


def _megatron(graph: CutGraph, between: str) -> dict[str, str]:
    """Heads and widths split; what lies between the split products is replicated, or dealt out by tokens."""
    cuts = {}
    for op in graph.ops:
        if op.kind == "attention":
            cuts[op.name] = "heads"
        elif op.kind in ("norm", "add"):
            cuts[op.name] = between
        elif op.kind == "matrix":
            narrow = "tokens" if between == "tokens" else "whole"
            cuts[op.name] = narrow if op.name in NARROW else "row" if op.name in SECOND else "column"
    return cuts


def _exchanged(graph: CutGraph) -> dict[str, str]:
    """Tokens travel to their experts and back."""
    return {op.name: "tokens" for op in graph.ops if op.kind in ("dispatch", "combine")}
