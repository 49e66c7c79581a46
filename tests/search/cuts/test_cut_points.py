"""Known answers: what the named cuts move, against the sources and against the estimate's own collectives."""

import pytest
from small_graphs import CLUSTER, stack

from shardwise.cost.network import network_of
from shardwise.plan.search.cut_study import study
from shardwise.plan.search.problems.cuts import block_of, chain, machine_at
from shardwise.spec.arch import model_of
from shardwise.spec.job import Job, precision_of
from shardwise.spec.policy import Policies, Policy
from shardwise.work import work_of
from shardwise.work.case import training_of

BF16 = precision_of("bf16")
TOKENS = 8192
A, B, C, D = 4096, 16384, 2048, 1024


def studied(graph, ends=("replicated", "tokens"), keeps=False, **how):
    places = {
        name: machine_at(CLUSTER, stack(keeps), BF16, graph.ranks, stride) for name, stride in (("near", 1), ("far", 8))
    }
    return study(graph, places, ends=ends, **how)


def point(found, name):
    return next(p for p in found.points if name in p.names)


def moves(found, name, place="near"):
    return sorted((m.phase, m.op, m.bytes) for m in point(found, name).at[place].moves)


def talk(ranks=2):
    return studied(chain([A, B, C, D], ranks, TOKENS, BF16), ends=("replicated",))


def test_the_talks_first_partition():
    """W1 by outputs, W2 and W3 by inputs: the sum behind W2 is scattered, the one behind W3 is wanted everywhere."""
    assert moves(talk(), "talk's Partition 1") == sorted([
        ("forward", "reduce_scatter", 2.0 * TOKENS * C), ("forward", "all_reduce", 2.0 * TOKENS * D),
        ("backward", "all_gather", 2.0 * TOKENS * C), ("backward", "all_reduce", 2.0 * TOKENS * A),
    ])  # fmt: skip


def test_the_talks_second_partition():
    """W1 and W2 by outputs, W3 by inputs: what is between W1 and W2 is gathered, and again in the backward pass."""
    assert moves(talk(), "talk's Partition 2") == sorted([
        ("forward", "all_gather", 2.0 * TOKENS * B), ("forward", "all_reduce", 2.0 * TOKENS * D),
        ("again", "all_gather", 2.0 * TOKENS * B), ("backward", "reduce_scatter", 2.0 * TOKENS * B),
        ("backward", "all_reduce", 2.0 * TOKENS * A),
    ])  # fmt: skip


def test_partitions_cost_what_they_move():
    """'Different partitions incur different communication cost': the wider of the two inner sizes decides."""
    wide_first, wide_last = talk(), studied(chain([A, C, B, D], 2, TOKENS, BF16), ends=("replicated",))
    for place in ("near", "far"):
        first, second = (point(wide_first, f"talk's Partition {n}").at[place].seconds for n in (1, 2))
        assert first < second
    first, second = (point(wide_last, f"talk's Partition {n}").at["far"].sent_bytes for n in (1, 2))
    assert second < first


@pytest.mark.parametrize("keeps", [False, True])
@pytest.mark.parametrize("sp", [False, True])
@pytest.mark.parametrize("name", ["llama-3-8b", "gpt-3-6.7b", "deepseek-v3"])
def test_megatrons_cut_moves_what_the_estimate_prices(name, sp, keeps):
    """The same collectives as work/layer.py states for tensor parallelism, to the byte."""
    model = model_of(name)
    found = studied(block_of(model, "attention", 8, 1, TOKENS, BF16), keeps=keeps, top=0)
    job, policy = Job(seq=TOKENS, global_batch=8), Policies.of([Policy(tp=8, sp=sp)])
    work = work_of(training_of(model, job, stack(keeps)), policy, every_stage=False)
    layer = next(kind for kind in work.kinds if kind.attention is not None)
    stated = sorted(
        (c.phase, c.op, float(c.bytes[0]))
        for c in layer.collectives
        for _ in range(int(c.count[0] if hasattr(c.count, "__len__") else c.count))
        if c.axis == "tp" and c.name.startswith("attention")
    )
    mine = moves(found, "Megatron + SP" if sp else "Megatron")
    told = sorted(
        ("backward" if phase == "again" else phase, op, size) for phase, op, size in mine if phase != "weights"
    )
    assert told == stated


def test_megatrons_products_are_those_of_the_estimate():
    """Where the estimate fuses nothing: shapes of products, bytes of element-wise passes."""
    model, policy = model_of("gpt-3-6.7b"), Policies.of([Policy(tp=8, sp=True)])
    (layer,) = work_of(training_of(model, Job(seq=TOKENS, global_batch=8), stack()), policy, every_stage=False).kinds
    graph = block_of(model, "layer", 8, 1, TOKENS, BF16)
    taken = {"o": "row", "up": "column", "down": "row", "activation": "features", "scores": "heads"}
    taken |= dict.fromkeys(("norm 1", "norm 2", "add 1", "add 2"), "tokens")
    held = {op.name: next(c for c in op.choices if c.name == taken[op.name]) for op in graph.ops if op.name in taken}
    for mine, name in (("o", "attention out"), ("up", "feed-forward up"), ("down", "feed-forward down")):
        stated = next(gemm for gemm in layer.gemms if gemm.name == name)
        assert (held[mine].gemm.m, held[mine].gemm.n, held[mine].gemm.k) == (stated.m, stated.n, stated.k)
    for mine, name in ((("activation",), "feed-forward activation"), (("norm 1", "norm 2"), "norm"),
                       (("add 1", "add 2"), "residual")):  # fmt: skip
        stated = next(part for part in layer.pointwise if part.name == name)
        assert sum(held[each].pointwise.forward_bytes for each in mine) == float(stated.forward_bytes[0])
        assert sum(held[each].pointwise.backward_bytes for each in mine) == float(stated.backward_bytes[0])
    scores = held["scores"].attended
    flops = 2.0 * scores.scores * (scores.score_width + scores.value_width)
    assert flops == pytest.approx(float(layer.attention.forward_flops()[0]))


def test_the_books_attention():
    """Q and K gathered, V local; backward gathers them again and reduces their gradients (the book's chapter 8)."""
    model = model_of("llama-3-8b")
    found = studied(block_of(model, "attention", 8, 1, TOKENS, BF16))
    wide, narrow, hidden = (2.0 * TOKENS * width for width in (4096, 1024, 4096))
    assert moves(found, "book: Q, K gathered") == sorted([
        ("forward", "all_gather", wide), ("forward", "all_gather", narrow), ("forward", "all_reduce", hidden),
        ("again", "all_gather", wide), ("again", "all_gather", narrow),
        ("backward", "reduce_scatter", wide), ("backward", "reduce_scatter", narrow),
        ("backward", "all_reduce", hidden),
    ])  # fmt: skip
    book, megatron = point(found, "book: Q, K gathered"), point(found, "Megatron")
    assert book.at["near"].compute_s > megatron.at["near"].compute_s
    assert book.at["near"].weight_bytes == megatron.at["near"].weight_bytes


def test_times_are_the_networks_own():
    found, network = talk(8), network_of(CLUSTER)
    for place, stride in (("near", 1), ("far", 8)):
        for move in point(found, "talk's Partition 1").at[place].moves:
            assert move.seconds == pytest.approx(float(network.seconds(move.op, move.bytes, 8, stride)))
    for each in found.points:
        assert each.at["near"].seconds <= each.at["far"].seconds


def test_the_optimum_is_below_every_other_point():
    for part in ("attention", "layer"):
        found = studied(block_of(model_of("llama-3-8b"), part, 8, 1, TOKENS, BF16), top=2)
        for place in ("near", "far"):
            best = point(found, f"optimum {place}").at[place].seconds
            assert all(best <= each.at[place].seconds * (1 + 1e-9) for each in found.points)
        following = [point(found, f"next {n}").at["near"].seconds for n in (1, 2)]
        assert following == sorted(following)


def test_whole_sequences_on_each_rank_are_data_parallelism():
    model = model_of("llama-3-8b")
    found = studied(block_of(model, "layer", 8, 8, 1024, BF16), ends=("tokens",), top=0)
    dealt = point(found, "data parallel")
    assert {m.phase for m in dealt.at["near"].moves} == {"weights"}
    one = studied(block_of(model, "attention", 8, 1, TOKENS, BF16), ends=("tokens",), top=0)
    assert not any("data parallel" in each.names for each in one.points)


def test_accumulation_pays_for_weight_gradients_once():
    graph = block_of(model_of("llama-3-8b"), "mlp", 8, 8, 1024, BF16)
    often, seldom = (studied(graph, ends=("tokens",), accumulate=n) for n in (1, 64))
    assert point(seldom, "data parallel").names[0].startswith("optimum")
    ratio = [sum(m.seconds for m in point(s, "data parallel").at["near"].moves) for s in (often, seldom)]
    assert ratio[0] == pytest.approx(64 * ratio[1])


def test_a_limit_on_memory_forces_cuts():
    graph = block_of(model_of("llama-3-8b"), "mlp", 8, 8, 1024, BF16)
    free = studied(graph, ends=("tokens",), accumulate=64)
    whole = point(free, "optimum near").at["near"].weight_bytes
    tight = studied(graph, ends=("tokens",), accumulate=64, most_bytes=whole / 8)
    assert point(tight, "optimum near").at["near"].weight_bytes == pytest.approx(whole / 8)
    assert point(tight, "optimum near").at["near"].seconds > point(free, "optimum near").at["near"].seconds
    assert not studied(graph, ends=("tokens",), most_bytes=whole / 9).found


def test_fewer_key_heads_than_ranks():
    """Keys and values are gathered before the query heads look at them."""
    found = studied(block_of(model_of("qwen2.5-7b"), "attention", 4, 1, TOKENS, BF16), ends=("replicated",), top=0)
    assert all(m.tensor in ("x", "o") for m in point(found, "Megatron").at["near"].moves)
    graph = block_of(model_of("llama-3-8b"), "attention", 16, 1, TOKENS, BF16)
    gathered = [m.tensor for m in point(studied(graph, top=0), "Megatron").at["near"].moves if m.op == "all_gather"]
    assert sorted(set(gathered)) == ["k", "v"]


def test_what_does_not_divide_is_told():
    found = studied(block_of(model_of("llama-3-8b"), "attention", 6, 1, 6000, BF16))
    assert any(note.startswith("Megatron: not possible here") for note in found.notes)
    assert found.found
