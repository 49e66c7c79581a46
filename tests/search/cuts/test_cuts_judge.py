"""The judge is judged: uncut gradients against finite differences, and a wrong layout is caught."""

from dataclasses import replace

import numpy as np
import pytest
from simulated_ranks import Ranks
from small_graphs import LATENT, ROUTED, block, carried_out, data_of, problem, routing_of, straight

CASES = [
    ("layer", {}),
    ("layer", {"feed_forward": None, "experts": ROUTED}),
    ("attention", {"attention": LATENT}),
]


def assignment_of(graph, *names):
    return tuple(next(i for i, c in enumerate(op.choices) if c.name in names) for op in graph.ops)


def loss(task, assignment, weights, inputs, gradients):
    ran = Ranks(task, assignment, weights, routing_of(task.graph)).run(inputs, gradients)
    return sum(float((ran.outputs[name] * gradients[name]).sum()) for name in gradients)


@pytest.mark.parametrize(("kind", "parts"), CASES)
def test_uncut_gradients_are_those_of_finite_differences(kind, parts):
    graph = block(kind, 1, sequences=1, seq=4, **parts).with_ends("replicated")
    task, step = problem(graph), 1e-6
    assignment = assignment_of(graph, "whole", "replicated")
    found = carried_out(task, assignment)
    weights, inputs, gradients = data_of(graph)
    for name, table in (*weights.items(), *inputs.items()):
        truth = (found.weight_gradients | found.input_gradients)[name]
        place = np.unravel_index(table.size // 3, table.shape)
        losses = []
        for sign in (1, -1):
            table[place] += sign * step
            losses.append(loss(task, assignment, weights, inputs, gradients))
            table[place] -= sign * step
        assert (losses[0] - losses[1]) / (2 * step) == pytest.approx(truth[place], rel=1e-5, abs=1e-7), name


def test_a_wrong_layout_is_caught():
    """A column cut that claims to hand back whole gradients, where each rank has only its part of the sum."""
    graph = straight((8, 16, 4), 2).with_ends("replicated")
    true = carried_out(problem(graph), assignment_of(graph, "column", "replicated"))
    column = graph.ops[1].choices[0]
    wrong = replace(column, inputs=(replace(column.inputs[0], gradient="replicated"),))
    ops = [replace(op, choices=(wrong,)) if op.name == "w1" else op for op in graph.ops]
    broken = replace(graph, ops=tuple(ops))
    with pytest.raises(AssertionError):
        np.testing.assert_allclose(
            carried_out(problem(broken), assignment_of(broken, "column", "replicated")).input_gradients["x"],
            true.input_gradients["x"],
        )
