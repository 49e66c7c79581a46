"""What must equal what: a strategy at the end of its range is another one."""

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: nothing can be simulated")

from shardwise.plugins.compressors import compressor  # noqa: E402
from shardwise.plugins.sync import descend, strategy  # noqa: E402
from shardwise.plugins.topologies import topology  # noqa: E402

N, D = 5, 11


def end(found, steps: int = 12, n: int = N, lr: float = 0.05):
    """Noisy gradients of unequal quadratics; the same noise for every strategy."""
    torch.manual_seed(3)
    curve, middle = torch.rand(n, D) + 0.5, torch.randn(n, D)
    noise = torch.randn(steps, n, D)
    x, _, _ = descend(found, torch.zeros(n, D), lambda x, t: curve * (x - middle) + 0.1 * noise[t], steps=steps, lr=lr)
    return x


PSGD = strategy("psgd")
COMPLETE = topology("complete")
IDENTITY = compressor("identity")
EQUAL = [
    (strategy("dsgd", topology=COMPLETE), PSGD),
    (strategy("local_sgd", every=1), PSGD),
    (strategy("gossip_pga", every=1), PSGD),
    (strategy("gradient_tracking", topology=COMPLETE), PSGD),
    (strategy("mem_sgd", compressor=IDENTITY), PSGD),
    (strategy("double_squeeze", compressor=IDENTITY), PSGD),
    (strategy("neolithic", compressor=IDENTITY), PSGD),
    (strategy("ef21_sgd", compressor=IDENTITY), PSGD),
    (strategy("ef21_sgdm", compressor=IDENTITY, share=1.0), PSGD),
    (strategy("qsgd", compressor=IDENTITY), PSGD),
    (strategy("fedavg", every=1), PSGD),
    (strategy("async_sgd"), PSGD),
    (strategy("fedbuff", buffer=N), PSGD),
    (strategy("trimmed_mean", byzantine=0, momentum=0.0), PSGD),
    (strategy("multi_krum", byzantine=0, momentum=0.0), PSGD),
    (strategy("centered_clipping", radius=1e9, momentum=0.0), PSGD),
    (strategy("hierarchical", size=5, outer=PSGD), PSGD),
    (strategy("hierarchical", size=1, outer=PSGD), PSGD),
    (strategy("post_local_sgd", start=100), PSGD),
    (strategy("dmsgd", momentum=0.0), strategy("dsgd")),
    (strategy("qg_dsgdm", momentum=0.0), strategy("dsgd")),
    (strategy("slowmo", every=4, momentum=0.0), strategy("local_sgd", every=4)),
    (strategy("diloco", every=4, rate=1.0, momentum=0.0), strategy("local_sgd", every=4)),
    (strategy("streaming_diloco", every=4, fragments=1, delay=0), strategy("diloco", every=4)),
    (strategy("post_local_sgd", start=0, every=3), strategy("local_sgd", every=3)),
    (strategy("fedbuff", buffer=N, periods=(3,)), strategy("local_sgd", every=3)),
    (strategy("neolithic", compressor=compressor("top_k", ratio=0.2), rounds=2),
     strategy("double_squeeze", compressor=compressor("top_k", ratio=0.4))),
]  # fmt: skip


@pytest.mark.parametrize(("found", "same"), EQUAL, ids=lambda s: f"{s.name}")
def test_equal(found, same):
    torch.testing.assert_close(end(found), end(same), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("via", ["tree", "server", "sharded"])
@pytest.mark.parametrize("n", [1, 2, 3, 6, 8])
def test_every_way_to_the_mean_is_the_mean(via, n):
    torch.testing.assert_close(end(strategy("psgd", via=via), n=n), end(PSGD, n=n))


def test_full_rank_is_dense():
    """A matrix of rank one is found by one factor; with error feedback nothing is lost."""
    from shardwise.plugins.sync._layout import ParameterLayout
    from shardwise.plugins.sync._stack import StackComm

    torch.manual_seed(0)
    left, right = torch.randn(8, 1), torch.randn(1, 9)
    g = (left @ right).reshape(1, -1).repeat(3, 1)
    comm = StackComm.of(ParameterLayout.named([("w", (8, 9))]), 3)
    found = strategy("power_sgd", rank=1)
    state = found.init(comm, torch.zeros(3, 72))
    torch.testing.assert_close(found.on_grad(comm, state, g, g, 0.1, 0), g)


def test_stale_gradients_come_late():
    gradients = torch.randn(6, 3, 4)
    seen = []
    descend(strategy("bounded_staleness", delay=2), torch.zeros(3, 4), lambda _, t: gradients[t], steps=6, lr=1.0,
            watch=lambda x, _: seen.append(x[0].clone()))  # fmt: skip
    steps = torch.diff(torch.stack([torch.zeros(4), *seen]), dim=0)
    assert torch.equal(steps[:2], torch.zeros(2, 4))
    torch.testing.assert_close(-steps[2:], gradients.mean(dim=1)[:4])


def test_streaming_applies_a_fragment_after_its_delay():
    found = strategy("streaming_diloco", every=4, fragments=2, delay=1, rate=1.0, momentum=0.0)
    rows = []
    descend(found, torch.zeros(2, 4), lambda *_: torch.tensor([[1.0] * 4, [3.0] * 4]), steps=4, lr=1.0,
            watch=lambda x, _: rows.append(x.clone()))  # fmt: skip
    # the first half leaves at step 1 at (-2, -6) and is applied at step 2: the mean, -4; the second half is not yet
    torch.testing.assert_close(rows[2], torch.tensor([[-4.0, -4.0, -3.0, -3.0], [-4.0, -4.0, -9.0, -9.0]]))


def test_relabelling_workers_relabels_the_result():
    """On a complete graph nobody is special."""
    torch.manual_seed(1)
    middle, order = torch.randn(4, 6), torch.tensor([2, 0, 3, 1])
    for found in (strategy("gradient_tracking", topology=COMPLETE), strategy("median"), strategy("mem_sgd")):
        plain, _, _ = descend(found, torch.zeros(4, 6), lambda x, _: x - middle, steps=5, lr=0.1)
        moved, _, _ = descend(found, torch.zeros(4, 6), lambda x, _: x - middle[order], steps=5, lr=0.1)
        torch.testing.assert_close(moved, plain[order])
