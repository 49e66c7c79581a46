"""A graph of products from a YAML file; docs/cuts.md states the form."""

from pathlib import Path
from typing import Any

from shardwise.fields import Fields, list_of, mapping_of
from shardwise.plan.search.problems.cuts._build import AttentionSizes, Builder, Heads
from shardwise.plan.search.problems.cuts._graph import CutGraph
from shardwise.registry import closest
from shardwise.spec.job import Precision
from shardwise.spec.plain_yaml import parse_yaml, read_yaml

MOST_OPS = 64
WIDEST = 10_000_000
EXAMPLE = "{name: w1, op: matrix, from: x, out: 16384}"
KINDS = ("matrix", "activation", "norm", "add", "attention")


def graph_from_file(path: Path, ranks: int, sequences: int, seq: int, precision: Precision) -> CutGraph:
    return graph_from_yaml(read_yaml(path, "graph"), path.name, ranks, sequences, seq, precision)


def graph_from_yaml(text: str, where: str, ranks: int, sequences: int, seq: int, precision: Precision) -> CutGraph:
    fields = Fields(mapping_of(parse_yaml(text, where), where, "'inputs:' and 'ops:'"), where)
    name = fields.text("name", default=where)
    made = Builder(name, ranks, sequences * seq, precision)
    wanted = "a name and a width, as {x: 4096}"
    inputs = mapping_of(fields.value("inputs", wanted), fields.at("inputs"), wanted)
    if not inputs:
        raise fields.refuse("inputs", wanted)
    widths = Fields(inputs, where, "inputs.")
    for each in inputs:
        made.input(_new_name(made, each, fields.at("inputs")), widths.whole(each, most=WIDEST))
    for place, op in enumerate(fields.sections("ops", f"one such as {EXAMPLE}", most=MOST_OPS), 1):
        _op(made, op, f"{where}: op {place}", sequences, seq)
    outputs = fields.texts("outputs") or (made.ops[-1].name,)
    fields.done()
    _check_ends(made, outputs, where)
    return made.graph(outputs)


def _op(made: Builder, fields: Fields, where: str, sequences: int, seq: int) -> None:
    kind = fields.text("op", choices=KINDS)
    name = _new_name(made, fields.text("name", example="w1"), where)
    reads = _reads(made, fields, where)
    several = {"activation": (1, 2), "add": (2, 8), "attention": (3, 3)}.get(kind, (1, 1))
    if not several[0] <= len(reads) <= several[1]:
        raise ValueError(f"{where}: {kind} reads {len(reads)} tensors; write {several[0]} to {several[1]} in 'from'")
    if kind == "attention":
        _attention(made, fields, where, name, reads, sequences, seq)
    else:
        widths = {made.tensors[read].width for read in reads}
        if len(widths) > 1:
            raise ValueError(f"{where}: {kind} of widths {sorted(widths)}; write tensors of one width in 'from'")
        if kind == "matrix":
            made.matrix(name, reads[0], fields.whole("out", most=WIDEST, example="16384"))
        elif kind == "norm":
            made.norm(name, reads[0], widths.pop())
        else:
            (made.activation if kind == "activation" else made.add)(name, *reads)
    fields.done()


def _attention(
    made: Builder, fields: Fields, where: str, name: str, reads: tuple[str, ...], sequences: int, seq: int
) -> None:
    heads = fields.whole("heads", example="32")
    groups = fields.whole("kv_heads", default=heads)
    query, key, value = (made.tensors[read].width for read in reads)
    if query % heads or key % groups or value % groups or heads % groups or query // heads != key // groups:
        raise ValueError(
            f"{where}: widths {query}, {key}, {value} do not make {heads} query and {groups} key heads of one width; "
            "write q, k and v in 'from' with widths heads x d, kv_heads x d and kv_heads x dv"
        )
    causal = fields.flag("causal", True)
    sizes = AttentionSizes(sequences, seq, seq, heads, query // heads, value // groups, 0.5 if causal else 1.0, causal)
    made.attention(name, reads[0], (Heads(reads[1], groups), Heads(reads[2], groups)), sizes, values_last=True)


def _new_name(made: Builder, name: Any, where: str) -> str:
    if not isinstance(name, str) or not name.isprintable() or not 0 < len(name) <= 40 or name.startswith("out of "):
        raise ValueError(f"{where}: name {str(name)[:40]!r} is not usable; write 1 to 40 printable characters")
    if name in made.tensors:
        raise ValueError(f"{where}: name {name!r} is taken; write another")
    return name


def _reads(made: Builder, fields: Fields, where: str) -> tuple[str, ...]:
    value = fields.value("from", "the name of a tensor made above")
    names = [value] if isinstance(value, str) else list_of(value, fields.at("from"), "a name or a list of names")
    for name in names:
        if not isinstance(name, str) or name not in made.tensors:
            known = list(made.tensors)
            raise ValueError(
                f"{where}: from {str(name)[:40]!r} is not a tensor made above; {closest(str(name)[:40], known)}"
            )
    return tuple(names)


def _check_ends(made: Builder, outputs: tuple[str, ...], where: str) -> None:
    for name in outputs:
        if name not in made.tensors:
            raise ValueError(
                f"{where}: outputs: {name[:40]!r} is not a tensor; {closest(name[:40], list(made.tensors))}"
            )
    if len(set(outputs)) < len(outputs):
        raise ValueError(f"{where}: outputs: a tensor is named twice; write each once")
    used = {read for op in made.ops for read in op.reads} | set(outputs)
    for name in made.tensors:
        if name not in used:
            raise ValueError(f"{where}: nothing reads {name!r}; add it to 'outputs' or leave it out")
