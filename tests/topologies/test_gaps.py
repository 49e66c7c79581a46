"""Known answers: spectral gaps at n = 64, exact averaging in finitely many steps."""

import numpy as np
import pytest

from shardwise.plugins.topologies import topologies, topology

# gap and degree at 64 workers; static exponential: 2 / (1 + log2 n), arXiv:2110.13363 proposition 1
AT_64 = {
    "ring": (3.2e-3, 2), "grid": (3.2e-2, 4), "star": (1 / 64, 63), "torus": (0.117, 4), "hypercube": (2 / 7, 6),
    "static_exp": (2 / 7, 6), "complete": (1.0, 63),
}  # fmt: skip


@pytest.mark.parametrize(("name", "gap", "degree"), [(name, *known) for name, known in AT_64.items()])
def test_gap_and_degree(name, gap, degree):
    assert topology(name).gap(64) == pytest.approx(gap, rel=0.02)
    assert topology(name).degree(64) == degree


def test_ring_gap_closes_quadratically():
    n = 256
    assert topology("ring").gap(n) * n**2 == pytest.approx(4 * np.pi**2 / 3, rel=0.01)


@pytest.mark.parametrize("n", [2, 4, 8, 16, 32, 64])
def test_one_peer_is_exact_at_powers_of_two(n):
    graph = topology("one_peer_exp")
    assert graph.exact(n)
    assert graph.degree(n) == 1
    assert graph.period(n) == n.bit_length() - 1


@pytest.mark.parametrize("n", [6, 12, 24, 48, 100])
def test_one_peer_leaves_something_elsewhere(n):
    graph = topology("one_peer_exp")
    assert not graph.exact(n)
    assert 0.15 < np.linalg.norm(graph.product(n) - 1 / n, 2) < 0.25


@pytest.mark.parametrize("k", [1, 2, 3, 4])
def test_base_is_exact_for_any_number(k):
    for n in range(1, 101):
        graph = topologies()["base"](degree_limit=k)
        assert graph.exact(n)
        assert graph.degree(n) <= k
        assert graph.period(n) <= 2 * np.log(n) / np.log(k + 1) + 3


def test_names_of_base():
    assert topology("base_3").degree_limit == 2
    with pytest.raises(ValueError, match="degree_limit"):
        topologies()["base"](degree_limit=0)


def test_wrong_names_and_numbers_say_what_to_write():
    with pytest.raises(ValueError, match="did you mean 'ring'"):
        topology("rign")
    with pytest.raises(ValueError, match="power of two, not 6; use static_exp"):
        topology("hypercube").matrices(6)
    with pytest.raises(ValueError, match="workers: 0"):
        topology("ring").matrices(0)
