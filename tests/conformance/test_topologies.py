"""Every graph in the folder: doubly stochastic, and what it claims about degree, symmetry, period and mixing."""

import numpy as np
import pytest

from shardwise.plugins.topologies import topologies, topology

SIZES = (1, 2, 3, 4, 5, 6, 8, 12, 16, 30)


def exists(name: str, n: int) -> bool:
    try:
        topology(name).check(n)
    except ValueError:
        return False
    return True


CASES = [(name, n) for name in topologies() for n in SIZES if exists(name, n)]


def test_every_graph_exists_for_several_sizes():
    assert all(sum(name == found for found, _ in CASES) > 3 for name in topologies())


@pytest.mark.parametrize(("name", "n"), CASES)
def test_matrices_average_without_bias(name, n):
    graph = topology(name)
    for matrix in graph.matrices(n):
        assert matrix.min() >= -1e-12
        np.testing.assert_allclose(matrix.sum(axis=0), 1.0, atol=1e-12)
        np.testing.assert_allclose(matrix.sum(axis=1), 1.0, atol=1e-12)
    if graph.symmetric:
        assert all(np.array_equal(matrix, matrix.T) for matrix in graph.matrices(n))
    assert graph.static == (graph.period(n) == 1) or not graph.static
    assert 0.0 <= graph.rho(n) < 1.0 or n == 1


@pytest.mark.parametrize(("name", "n"), CASES)
def test_rounds_say_what_the_matrices_say(name, n):
    graph = topology(name)
    for matrix, who in zip(graph.matrices(n), graph.rounds(n), strict=True):
        built = np.zeros((n, n))
        for i in range(n):
            built[i, list(who.sources[i])] = who.weights[i]
            built[i, i] = 1.0 - sum(who.weights[i])
            assert all(i in who.targets[j] for j in who.sources[i])
        np.testing.assert_allclose(built, matrix, atol=1e-12)
        assert sum(map(len, who.sources)) == sum(map(len, who.targets))
        assert max(map(len, who.targets)) <= graph.degree(n)


@pytest.mark.parametrize("name", list(topologies()))
def test_fields(name):
    assert topology(name).name == name
