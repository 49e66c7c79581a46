"""Graphs from YAML: what is read, and what is refused with one line that says what to write."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_graphs import DOUBLE, GATED, best, block, problem

from shardwise.plan.search.problems.cuts import graph_from_yaml

MLP = """
name: gated
inputs: {x: 16}
ops:
  - {name: gate, op: matrix, from: x, out: 24}
  - {name: up, op: matrix, from: x, out: 24}
  - {name: activation, op: activation, from: [gate, up]}
  - {name: down, op: matrix, from: activation, out: 16}
"""
ATTENTION = """
inputs: {x: 16, mask: 16}
ops:
  - {name: n, op: norm, from: x}
  - {name: q, op: matrix, from: n, out: 32}
  - {name: k, op: matrix, from: n, out: 16}
  - {name: v, op: matrix, from: n, out: 16}
  - {name: a, op: attention, from: [q, k, v], heads: 8, kv_heads: 4, causal: no}
  - {name: o, op: matrix, from: a, out: 16}
  - {name: s, op: add, from: [o, x, mask]}
outputs: [s, q]
"""


def read(text, ranks=4, sequences=2, seq=8):
    return graph_from_yaml(text, "g.yaml", ranks, sequences, seq, DOUBLE)


def test_the_same_graph_costs_the_same_from_a_file():
    mine, built = (problem(g.with_ends("tokens")) for g in (read(MLP), block("mlp", 4, feed_forward=GATED)))
    found, truth = (t.detail(best(t)[0]) for t in (mine, built))
    assert found.seconds == truth.seconds
    assert [(m.phase, m.op, m.bytes) for m in found.moves] == [(m.phase, m.op, m.bytes) for m in truth.moves]


def test_attention_sums_and_several_ends():
    graph = read(ATTENTION)
    assert graph.name == "g.yaml"
    assert [op.name for op in graph.ops if op.kind in ("input", "output")] == ["x", "mask", "out of s", "out of q"]
    scores = next(op for op in graph.ops if op.kind == "attention")
    assert [choice.name for choice in scores.choices] == ["heads", "gathered", "whole", "tokens"]
    assert scores.choices[2].attended.scores == 2 * 8 * 8 * 8
    assert best(problem(graph.with_ends("replicated")))


def test_values_are_cut_inside_heads_only_where_their_order_is_free():
    for outputs in ("[s, q, v]", "[s, q, a]"):
        changed = read(ATTENTION.replace("[s, q]", outputs))
        scores = next(op for op in changed.ops if op.kind == "attention")
        assert "gathered" not in [choice.name for choice in scores.choices]


def test_two_chains_side_by_side_are_no_chain():
    graph = read("inputs: {x: 16, y: 16}\nops: [{name: a, op: matrix, from: x, out: 8}, "
                 "{name: b, op: matrix, from: y, out: 8}]\noutputs: [a, b]")  # fmt: skip
    assert not graph.is_chain
    assert read("inputs: {x: 16}\nops: [{name: a, op: matrix, from: x, out: 8}]").is_chain
    task = problem(graph.with_ends("replicated"))
    assert task.detail(best(task)[0]).seconds == task.detail(best(task, method="exhaustive")[0]).seconds


BAD = {
    "": "g.yaml: None is not a mapping",
    "inputs: {x: 16}": "ops is missing",
    "ops: []": "inputs is missing",
    "inputs: {x: 16}\nops: []": "ops has 0 entries; write 1 to 64",
    "inputs: {x: wide}\nops: [a]": "whole number",
    "inputs: {x: 99999999}\nops: [a]": "inputs.x is '99999999'; write a whole number from 1 to 10000000",
    "inputs: {x: 16}\nops: [a]": "ops[0]: 'a' is not a mapping",
    "inputs: {x: 16}\nops: [{name: a, op: matrix, from: x}]": "out is missing",
    "inputs: {x: 16}\nops: [{name: a, op: matrics, from: x, out: 4}]": "did you mean 'matrix'",
    "inputs: {x: 16}\nops: [{name: a, op: matrix, from: z, out: 4}]": "'z' is not a tensor made above",
    "inputs: {x: 16}\nops: [{name: x, op: matrix, from: x, out: 4}]": "taken",
    "inputs: {x: 16}\nops: [{name: a, op: matrix, from: [x, x], out: 4}]": "reads 2 tensors",
    "inputs: {x: 16, y: 8}\nops: [{name: a, op: add, from: [x, y]}]": "widths [8, 16]",
    "inputs: {x: 16}\nops: [{name: a, op: norm, from: x, out: 4}]": "ops[0].out is unknown",
    "inputs: {x: 16, y: 8}\nops: [{name: a, op: norm, from: x}]": "nothing reads 'y'",
    "inputs: {x: 16}\nops: [{name: a, op: norm, from: x}]\noutputs: [b]": "outputs: 'b' is not a tensor",
    "inputs: {x: 16}\nops: [{name: a, op: norm, from: x}]\noutputs: [a, a]": "named twice",
    "inputs: {x: 16}\nops: [{name: a, op: attention, from: [x, x, x], heads: 3}]": "do not make 3 query",
    "inputs: {x: 16}\nops: [{name: a, op: norm, from: &b x}, *b]": "aliases",
    "inputs: {x: 16}\nops: [" + "{name: a, op: norm, from: x}," * 65 + "]": "ops has 65 entries; write 1 to 64",
}


@pytest.mark.parametrize("text", BAD)
def test_what_is_refused(text):
    with pytest.raises(ValueError, match=r"g\.yaml") as told:
        read(text)
    assert BAD[text] in str(told.value)
    assert "\n" not in str(told.value)


WORDS = [
    "matrix",
    "attention",
    "add",
    "x",
    "q",
    "[q, q, q]",
    "0",
    "-1",
    "1e9",
    "heads",
    "from",
    "out",
    "{}",
    "[]",
    "*a",
    "\t",
]


@settings(max_examples=150, deadline=None)
@given(st.integers(0, len(ATTENTION)), st.integers(0, 12), st.sampled_from(WORDS))
def test_a_mutated_file_is_a_graph_or_a_value_error(place, gone, word):
    text = ATTENTION[:place] + word + ATTENTION[place + gone :]
    try:
        graph = read(text)
    except ValueError as refusal:
        told = str(refusal)
    else:
        told = ""
        problem(graph.with_ends("replicated"))
    assert "\n" not in told
