"""Every exact method against enumeration, on drawn chains and graphs: the best, the next best, limits of memory."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from small_graphs import CLUSTER, ROUTED, best, block, problem, stack

from shardwise.plan.search.methods import BUDGET, method_of, methods
from shardwise.plan.search.problems.cuts import CutProblem, block_of, chain, machine_at
from shardwise.plan.search.problems.cuts._build import Builder
from shardwise.spec.arch import model_of
from shardwise.spec.job import precision_of

BF16 = precision_of("bf16")
WIDTHS = st.sampled_from([12, 60, 64, 256, 1000, 1024, 4096, 16384])
slowly = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@st.composite
def settings_of(draw):
    return {
        "ranks": draw(st.sampled_from([2, 4, 8])), "tokens": draw(st.sampled_from([16, 100, 4096, 65536])),
        "stride": draw(st.sampled_from([1, 8])), "ends": draw(st.sampled_from(["replicated", "tokens", "features"])),
        "keeps": draw(st.booleans()), "accumulate": draw(st.sampled_from([1, 7])), "count": draw(st.integers(1, 6)),
    }  # fmt: skip


def task_of(graph, how):
    try:
        graph = graph.with_ends(how["ends"])
    except ValueError:
        graph = graph.with_ends("replicated")
    machine = machine_at(CLUSTER, stack(how["keeps"]), BF16, graph.ranks, how["stride"])
    return CutProblem(graph, machine, how["accumulate"])


def seconds(task, found):
    return [task.detail(assignment).seconds for assignment in found]


def cuts(task, found):
    return [tuple(assignment[place] for place in task.graph.shown) for assignment in found]


def same(task, found, truth):
    """The same times in the same order, different cuts; what ties may stand in any order."""
    assert seconds(task, found) == pytest.approx(seconds(task, truth), rel=1e-9)
    assert len(set(cuts(task, found))) == len(found) == len(truth)


def agree(task, count, limit=np.inf):
    """Enumeration's answers, once every exact method that works here has given the same."""
    task = CutProblem(task.graph, task.machine, task.accumulate, limit)
    truth = best(task, count, "exhaustive")
    for method in methods().values():
        if method.exact and not method.why_not(task, BUDGET):
            same(task, best(task, count, method.name), truth)
    return truth


def limit_of(task, share):
    least = sum(min(sizes) for sizes in task.bytes)
    most = sum(max(sizes) for sizes in task.bytes)
    return least + share * (most - least) if np.isfinite(share) else np.inf


@slowly
@given(st.lists(WIDTHS, min_size=2, max_size=6), settings_of(), st.sampled_from([-0.1, 0.0, 0.2, 0.6, np.inf]))
def test_chains(sizes, how, share):
    task = task_of(chain(sizes, how["ranks"], how["tokens"], BF16), how)
    limit = limit_of(task, share)
    truth = agree(task, how["count"], limit)
    assert bool(truth) == (share >= 0 or len({limit_of(task, 0), limit_of(task, 1)}) == 1)
    assert not method_of("dp").why_not(task, BUDGET)


@st.composite
def graphs(draw):
    """Products, sums, norms and activations over whatever was made before."""
    how = draw(settings_of())
    made = Builder("drawn", how["ranks"], how["tokens"], BF16)
    made.input("x", draw(WIDTHS))
    for number in range(draw(st.integers(1, 6))):
        name, read = f"t{number}", draw(st.sampled_from(sorted(made.tensors)))
        alike = [t for t in sorted(made.tensors) if made.tensors[t].width == made.tensors[read].width]
        kind = draw(st.sampled_from(["matrix", "matrix", "matrix", "add", "norm", "activation"]))
        if kind == "matrix":
            made.matrix(name, read, draw(WIDTHS))
        elif kind == "norm":
            made.norm(name, read, made.tensors[read].width)
        elif kind == "add":
            made.add(name, read, draw(st.sampled_from(alike)))
        else:
            made.activation(name, *draw(st.lists(st.sampled_from(alike), min_size=1, max_size=2)))
    used = {read for op in made.ops for read in op.reads}
    return made.graph(tuple(name for name in made.tensors if name not in used)), how


@slowly
@given(graphs(), st.sampled_from([0.0, 0.3, np.inf]))
def test_graphs(drawn, share):
    graph, how = drawn
    task = task_of(graph, how)
    agree(task, how["count"], limit_of(task, share))


@pytest.mark.parametrize("stride", [1, 8])
@pytest.mark.parametrize("name", ["llama-3-8b attention", "llama-3-8b mlp", "gpt-3-175b mlp", "mixtral-8x7b moe",
                                  "deepseek-v3 attention"])  # fmt: skip
def test_blocks_of_models(name, stride):
    model, part = name.split()
    for ends in ("replicated", "tokens"):
        graph = block_of(model_of(model), part, 8, 1, 8192, BF16).with_ends(ends)
        task = CutProblem(graph, machine_at(CLUSTER, stack(), BF16, 8, stride))
        agree(task, 4)


@pytest.mark.slow
def test_a_whole_layer():
    graph = block_of(model_of("llama-3-8b"), "layer", 8, 1, 8192, BF16).with_ends("tokens")
    task = CutProblem(graph, machine_at(CLUSTER, stack(), BF16, 8, 1))
    agree(task, 4)


def test_no_assignment_is_below_the_best():
    task = problem(block("moe", 4, feed_forward=None, experts=ROUTED).with_ends("tokens"))
    least = task.detail(best(task)[0]).seconds
    draw = np.random.default_rng(1)
    for _ in range(500):
        assignment = tuple(int(draw.integers(len(op.choices))) for op in task.graph.ops)
        assert task.detail(assignment).seconds >= least * (1 - 1e-9)


def test_many_points_at_once_cost_what_each_costs_alone():
    """Against the collectives listed one by one; limits and layouts that cannot be included."""
    for task in (problem(block("moe", 4, feed_forward=None, experts=ROUTED).with_ends("tokens")),
                 problem(block("layer", 8, sequences=1, seq=12).with_ends("replicated"))):  # fmt: skip
        task = CutProblem(task.graph, task.machine, most_bytes=limit_of(task, 0.5))
        points = task.starts(300, np.random.default_rng(2))
        priced = task.price(points)
        for point, whole, over in zip(points, priced.seconds, priced.over, strict=True):
            told = task.detail(tuple(point.tolist()))
            assert whole == pytest.approx(told.seconds, rel=1e-12)
            assert (over > 0) == (told.weight_bytes > task.most_bytes)
        assert 0 < (priced.over > 0).mean() < 1


def test_what_a_method_cannot_do_is_said():
    task = problem(block("attention", 4).with_ends("tokens"))
    assert "not a chain" in method_of("dp").why_not(task, BUDGET)
    with pytest.raises(ValueError, match="not a chain"):
        method_of("dp").solve(task)
    assert "the budget is 10" in method_of("exhaustive").why_not(task, 10)
