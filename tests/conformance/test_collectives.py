"""Every algorithm in the folder, on real arrays: right result, and exactly the bytes and rounds it claims."""

import numpy as np
import pytest

from shardwise.collectives import OPS, Shape, collective, collectives

LENGTH = 5040
CASES = [
    (name, op, ranks, local)
    for name, found in collectives().items()
    for op in found.ops
    for ranks in range(1, 10)
    for local in range(1, ranks + 1)
    if ranks % local == 0 and (found.spans_nodes or local == ranks)
]


def expected(op: str, arrays: list[np.ndarray]) -> list[np.ndarray]:
    ranks, total = len(arrays), np.sum(arrays, axis=0)
    match op:
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
    for got, want in zip(ran.results, expected(op, kept), strict=True):
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
    assert found.reduces_at in ("none", "node", "all")


@pytest.mark.parametrize(("name", "op"), [(n, op) for n, c in collectives().items() for op in c.ops])
def test_load_agrees_with_the_bytes_really_sent(name, op):
    """Per GPU, level by level, the placed load sums to what a rank of the execution sends (trees: to its maximum)."""
    found = collective(name)
    for local, nodes in ((4, 1), (4, 2), (2, 4), (1, 4), (8, 16)):
        ranks = local * nodes
        if found.spans_nodes and nodes == 1:
            continue
        load = found.load(op, Shape(np.array([[float(local)], [float(ranks)]])))
        total = float(load.volume.sum())
        if name in ("ring", "tree"):
            # A flat ring's own traffic is counted at the level it crosses, and inside the node as well.
            total = float(load.volume[0, 0] if local > 1 else load.volume[1, 0])
        if name == "nvls" and nodes > 1:
            continue
        assert total == pytest.approx(float(np.max(found.sent(op, ranks, local))), rel=0.26 if "tree" in name else 1e-9)


def test_every_op_is_served():
    assert {op for found in collectives().values() for op in found.ops} == set(OPS)


def test_unknown_name_says_what_to_write():
    with pytest.raises(ValueError, match="did you mean 'ring'"):
        collective("rnig")
