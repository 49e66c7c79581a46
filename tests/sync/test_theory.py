"""Known behaviour: which pairs converge, how biases scale, and what fp32 does to them."""

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: nothing can be simulated")

from shardwise.plugins.sync import descend, strategy  # noqa: E402
from shardwise.plugins.sync import exact_diffusion as diffusion  # noqa: E402
from shardwise.plugins.sync._problems import LeastSquares, errors  # noqa: E402
from shardwise.plugins.topologies import topology  # noqa: E402

N = 16
EXACT = ("gradient_tracking", "exact_diffusion")


def problem(n: int = N) -> LeastSquares:
    return LeastSquares.of(n, 6, spread=1.0, noise=0.0)


def double(found, n: int = N, steps: int = 2500, lr: float = 0.1) -> float:
    """The error at the end in fp64."""
    given = problem(n)
    curve, slope = given.curve.double(), given.slope.double()
    best = torch.linalg.solve(curve.mean(0), slope.mean(0))
    start = torch.zeros(slope.shape, dtype=torch.float64)
    x, _, _ = descend(found, start, lambda x, _: (curve @ x[..., None])[..., 0] - slope, steps=steps, lr=lr)
    return float(((x - best) ** 2).sum(dim=1).mean())


@pytest.mark.parametrize("graph", ["ring", "torus", "hypercube", "grid", "star"])
@pytest.mark.parametrize("name", EXACT)
def test_unequal_data_leave_no_bias(name, graph):
    assert double(strategy(name, topology=topology(graph)), lr=0.2) < 1e-8


@pytest.mark.parametrize("graph", ["static_exp", "one_peer_exp", "base"])
def test_tracking_works_on_any_graph(graph):
    assert double(strategy("gradient_tracking", topology=topology(graph))) < 1e-12


@pytest.mark.parametrize(("graph", "n"), [("static_exp", 16), ("one_peer_exp", 32), ("base", 12)])
def test_what_is_refused_diverges(graph, n, monkeypatch):
    monkeypatch.setattr(diffusion, "need", lambda *_, **__: None)
    with pytest.raises(AssertionError):
        assert double(strategy("exact_diffusion", topology=topology(graph)), n, steps=8000, lr=0.05) < 1.0


def test_the_bias_of_dsgd_grows_with_the_square_of_the_rate():
    ring = strategy("dsgd", topology=topology("ring"))
    low, high = double(ring, lr=0.01, steps=6000), double(ring, lr=0.02, steps=3000)
    assert high / low == pytest.approx(4.0, rel=0.25)


def test_momentum_s_bias_and_its_cures():
    """DmSGD's is that of a rate 1 / (1 - momentum) larger; DecentLaM and quasi-global momentum avoid it."""
    ends = {
        name: double(strategy(name, topology=topology("torus")), lr=0.005, steps=4000)
        for name in ("dmsgd", "decentlam", "qg_dsgdm")
    }
    assert ends["dmsgd"] > 20 * ends["decentlam"]
    assert ends["dmsgd"] > 20 * ends["qg_dsgdm"]


def test_fp32_does_not_drift():
    """Exact diffusion with a plain W @ x loses digits with every step; in difference form it does not."""
    given = problem()
    rate = 0.1
    found = errors(given, strategy("exact_diffusion", topology=topology("ring")), steps=6000, lr=rate)
    assert found[-1] < 1e-6
    assert found[-1] < 2 * min(found[3000:]) + 1e-8


def test_workers_of_gradient_strategies_stay_equal():
    given = LeastSquares.of(5, 6, spread=1.0, noise=1.0)
    for name in ("psgd", "mem_sgd", "double_squeeze", "ef21_sgdm", "median", "krum", "bounded_staleness"):
        x, _, _ = descend(strategy(name), torch.zeros(5, 6), given.gradients(), steps=20, lr=0.05)
        assert torch.equal(x, x[:1].expand_as(x)), name
