"""Cuts carried out on simulated ranks give what the uncut products give, and move the bytes that were priced."""

from collections import Counter
from itertools import product

import numpy as np
import pytest
from small_graphs import FEW_KEYS, LATENT, PLAIN, ROUTED, best, block, carried_out, drawn_graph, problem, straight

from shardwise.plan.search.problems.cuts._named import named_cuts

ENDS = ("replicated", "tokens", "features")


def uncut(make):
    """The same graph on one rank, every matrix whole."""
    graph = make(1).with_ends("replicated")
    whole = graph.fixed({op.name: "whole" for op in graph.ops if op.shown})
    task = problem(whole)
    return carried_out(task, best(task, method="exhaustive")[0])


def agrees(task, assignment, expected):
    found = carried_out(task, assignment)
    for mine, true in (
        (found.outputs, expected.outputs), (found.input_gradients, expected.input_gradients),
        (found.weight_gradients, expected.weight_gradients),
    ):  # fmt: skip
        assert mine.keys() == true.keys()
        for name in true:
            np.testing.assert_allclose(mine[name], true[name], rtol=1e-8, atol=1e-10, err_msg=name)
    moved = Counter()
    for phase, tensor, op, sent in found.moved:
        assert len(set(sent)) == 1
        moved[phase, tensor, op, float(sent[0])] += 1
    assert moved == Counter((m.phase, m.tensor, m.op, m.sent_bytes) for m in task.detail(assignment).moves)


def drawn(graph, count, seed):
    draw = np.random.default_rng(seed)
    for _ in range(count):
        yield tuple(int(draw.integers(len(op.choices))) for op in graph.ops)


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("ends", ENDS)
def test_every_cut_of_a_chain(ranks, ends):
    sizes = (8, 16, 4, 12)
    graph, expected = straight(sizes, ranks).with_ends(ends), uncut(lambda n: straight(sizes, n))
    task = problem(graph)
    for assignment in product(*(range(len(op.choices)) for op in graph.ops)):
        agrees(task, assignment, expected)


BLOCKS = {
    "attention": ("attention", {}),
    "attention with few keys": ("attention", {"attention": FEW_KEYS}),
    "latent attention": ("attention", {"attention": LATENT}),
    "mlp": ("mlp", {}),
    "plain mlp": ("mlp", {"feed_forward": PLAIN}),
    "moe": ("moe", {"feed_forward": None, "experts": ROUTED}),
    "layer": ("layer", {}),
    "layer with experts": ("layer", {"feed_forward": None, "experts": ROUTED}),
}


@pytest.mark.parametrize("name", BLOCKS)
def test_drawn_cuts_of_blocks(name):
    kind, parts = BLOCKS[name]
    expected = uncut(lambda n: block(kind, n, **parts))
    for ranks, ends, keeps in ((2, "replicated", False), (4, "tokens", True), (4, "features", False)):
        graph = block(kind, ranks, **parts).with_ends(ends)
        task = problem(graph, keeps_gathered=keeps)
        for assignment in drawn(graph, 12, seed=ranks):
            agrees(task, assignment, expected)


@pytest.mark.parametrize("name", BLOCKS)
def test_named_and_best_cuts_of_blocks(name):
    kind, parts = BLOCKS[name]
    expected = uncut(lambda n: block(kind, n, **parts))
    for ranks, ends in ((2, "replicated"), (4, "tokens")):
        graph = block(kind, ranks, **parts).with_ends(ends)
        task = problem(graph)
        agrees(task, best(task)[0], expected)
        for named in named_cuts(graph):
            held = graph.fixed(named.cuts)
            if held is not None:
                fixed = problem(held)
                agrees(fixed, best(fixed)[0], expected)


@pytest.mark.parametrize("seed", range(20))
def test_drawn_cuts_of_drawn_graphs(seed):
    expected = uncut(lambda n: drawn_graph(seed, n))
    for ranks, ends, keeps in ((2, "features", True), (4, "replicated", False), (4, "tokens", False)):
        graph = drawn_graph(seed, ranks).with_ends(ends)
        task = problem(graph, keeps_gathered=keeps)
        for assignment in (*drawn(graph, 3, seed), best(task)[0]):
            agrees(task, assignment, expected)
