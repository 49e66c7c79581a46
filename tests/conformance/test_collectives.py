"""Every algorithm in the folder, on real arrays: right result, and exactly the bytes and rounds it claims."""

import numpy as np
import pytest

from shardwise.plugins.collectives import FABRIC_SWITCH, NODE_SWITCH, OPS, Shape, collective, collectives

LENGTH = 5040
CASES = [
    (name, op, ranks, local)
    for name, found in collectives().items()
    for op in found.ops
    for ranks in range(1, 10)
    for local in range(1, ranks + 1)
    if ranks % local == 0
]


def expected(name: str, op: str, arrays: list[np.ndarray]) -> list[np.ndarray]:
    ranks, total = len(arrays), np.sum(arrays, axis=0)
    match op:
        case "neighbor_average":
            heard = [[array] for array in arrays]
            for each in collective(name).flows(op, ranks, 1):
                for source, target in zip(each.source, each.target, strict=True):
                    heard[target].append(arrays[source])
            return [np.mean(rows, axis=0) for rows in heard]
        case "all_reduce":
            return [total] * ranks
        case "all_gather":
            return [np.concatenate(arrays)] * ranks
        case "reduce_scatter":
            return np.split(total, ranks)
        case "all_to_all":
            cut = [np.split(array, ranks) for array in arrays]
            return [np.concatenate([cut[source][rank] for source in range(ranks)]) for rank in range(ranks)]
        case "broadcast":
            return [arrays[0]] * ranks
    return [arrays[0], *arrays[:-1]]


@pytest.mark.parametrize(("name", "op", "ranks", "local"), CASES)
def test_result_bytes_and_rounds(name, op, ranks, local):
    found = collective(name)
    random = np.random.default_rng(ranks)
    length = LENGTH // ranks if op == "all_gather" else LENGTH
    arrays = [random.integers(-9, 9, length).astype(float) for _ in range(ranks)]
    kept = [array.copy() for array in arrays]
    ran = found.run(op, arrays, local)
    for got, want in zip(ran.results, expected(name, op, kept), strict=True):
        np.testing.assert_array_equal(got, want)
    for array, before in zip(arrays, kept, strict=True):
        np.testing.assert_array_equal(array, before)
    buffer = length * (ranks if op == "all_gather" else 1) * 8
    np.testing.assert_allclose(ran.sent_bytes, found.sent(op, ranks, local) * buffer, rtol=1e-12)
    assert ran.rounds == found.rounds(op, ranks, local)


@pytest.mark.parametrize("name", list(collectives()))
def test_fields(name):
    found = collective(name)
    assert found.name == name
    assert set(found.ops) <= set(OPS)
    assert found.reduces_at in ("none", "node", "network", "all")


@pytest.mark.parametrize(("name", "op", "ranks", "local"), CASES)
def test_flows_sum_to_the_bytes_and_rounds(name, op, ranks, local):
    found = collective(name)
    sent, rounds, passed = np.zeros(ranks), 0, {NODE_SWITCH: [0.0, 0.0], FABRIC_SWITCH: [0.0, 0.0]}
    for each in found.flows(op, ranks, local):
        assert len(each.source) == len(each.target) == len(each.fraction) > 0
        assert (each.source != each.target).all()
        assert np.maximum(each.source, each.target).max() < ranks
        ranked = each.source >= 0
        np.add.at(sent, each.source[ranked], each.times * each.fraction[ranked])
        for switch, sums in passed.items():
            sums[0] += each.times * each.fraction[each.target == switch].sum()
            sums[1] += each.times * each.fraction[each.source == switch].sum()
        rounds += each.times
    np.testing.assert_allclose(sent, found.sent(op, ranks, local), rtol=1e-12, atol=1e-15)
    assert rounds == found.rounds(op, ranks, local)
    for into, out in passed.values():
        assert into == pytest.approx(out)


def crossing(name, op, ranks, local):
    """Per rank: fraction of B sent to ranks and switches in its own node, and above it."""
    inside, outside = np.zeros(ranks), np.zeros(ranks)
    for each in collective(name).flows(op, ranks, local):
        mine = each.source >= 0
        source, target, fraction = each.source[mine], each.target[mine], each.times * each.fraction[mine]
        near = np.where(target >= 0, source // local == target // local, target == NODE_SWITCH)
        np.add.at(inside, source[near], fraction[near])
        np.add.at(outside, source[~near], fraction[~near])
    return inside, outside


@pytest.mark.parametrize(("name", "op"), [(n, op) for n, c in collectives().items() for op in c.ops])
def test_load_agrees_with_the_flows(name, op):
    """Level by level: what the busiest rank sends into it; where a node's cards are pooled, its ranks together."""
    found = collective(name)
    for local, nodes in ((4, 1), (4, 2), (2, 4), (1, 4), (8, 16)):
        ranks = local * nodes
        if found.spans_nodes and nodes == 1:
            continue
        load = found.load(op, Shape(np.array([[float(local)], [float(ranks)]])))
        inside, outside_of_rank = crossing(name, op, ranks, local)
        outside = outside_of_rank
        if found.pooled:
            outside = outside.reshape(nodes, local).mean(axis=1)
        # the law of a binary tree counts a full one; of a chain of sends only the slowest hop
        rel = 0.26 if "tree" in name else 1e-9
        if local > 1 and not (op == "send" and nodes > 1):
            assert load.volume[0, 0] == pytest.approx(inside.max(), rel=rel)
        if nodes > 1:
            assert load.volume[1, 0] == pytest.approx(outside.max(), rel=rel)


def test_every_op_is_served():
    assert {op for found in collectives().values() for op in found.ops} == set(OPS)


def test_unknown_name_says_what_to_write():
    with pytest.raises(ValueError, match="did you mean 'ring'"):
        collective("rnig")
