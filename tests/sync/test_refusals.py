"""Pairs that are known to fail are refused where they are put together, with the reason and what to write."""

import re

import pytest

from shardwise.plugins.compressors import compressor
from shardwise.plugins.sync import strategies, strategy
from shardwise.plugins.topologies import topology

REFUSED = [
    (lambda: strategy("decentlam", topology=topology("static_exp")), "decentlam on static_exp: it diverges"),
    (lambda: strategy("decentlam", topology=topology("one_peer_exp")), "fixed and w_ij = w_ji"),
    (lambda: strategy("decentlam", topology=topology("base")), "symmetric and static"),
    (lambda: strategy("exact_diffusion", topology=topology("static_exp")), "such as ring, torus"),
    (lambda: strategy("exact_diffusion", topology=topology("base")), "it diverges unless W is fixed"),
    (lambda: strategy("qsgd", compressor=compressor("top_k")), "top_k is biased"),
    (lambda: strategy("double_squeeze", compressor=compressor("qsgd")), "needs one that contracts"),
    (lambda: strategy("ef21_sgd", compressor=compressor("natural")), "needs one that contracts"),
    (lambda: strategy("hierarchical", inner=strategy("dmsgd")), "inner: dmsgd replaces the optimizer"),
    (lambda: strategy("hierarchical", outer=strategy("hierarchical")), "cuts the row"),
    (lambda: strategy("hierarchical", outer=strategy("power_sgd")), "whole matrices"),
    (lambda: strategy("psgd", via="rign"), "did you mean 'ring'"),
    (lambda: strategy("local_sgd", every=0), "every: 0 is out of range"),
    (lambda: strategy("local_sgd", evry=3), "did you mean 'every'"),
    (lambda: strategy("streaming_diloco", every=4, delay=4), "delay: 4 steps"),
    (lambda: strategy("slowmo", momentum=2.0), "momentum: 2"),
    (lambda: strategy("psdg"), "did you mean 'psgd'"),
    (lambda: strategy("fedavg", samples=(0,)), "samples"),
    (lambda: strategy("async_sgd", periods=()), "periods"),
    (lambda: strategy("demo", chunk=4, k=17), "k up to its square"),
    (lambda: strategy("centered_clipping", radius=0), "radius"),
    (lambda: strategy("krum", byzantine=2).check(6), "needs 7 or more, not 6"),
    (lambda: strategy("trimmed_mean", byzantine=2).check(4), "needs 5 or more"),
    (lambda: strategy("hierarchical", size=8).check(12), "do not divide into groups of 8"),
    (lambda: strategy("dsgd", topology=topology("hypercube")).check(6), "power of two"),
    (lambda: strategy("fedavg", drawn=5).check(4), "drawn: 5 of 4"),
    (lambda: strategy("psgd").check(0), "workers: 0"),
]  # fmt: skip


@pytest.mark.parametrize(("make", "clue"), REFUSED, ids=[clue for _, clue in REFUSED])
def test_refused_with_a_reason(make, clue):
    with pytest.raises(ValueError, match=re.escape(clue)) as problem:
        make()
    assert "\n" not in str(problem.value)


def test_the_other_pairs_are_accepted():
    for name in ("ring", "grid", "torus", "star", "hypercube", "complete"):
        strategy("decentlam", topology=topology(name))
        strategy("exact_diffusion", topology=topology(name))
    strategy("qsgd", compressor=compressor("top_k"), allow_biased=True)


@pytest.mark.parametrize("name", [name for name, kind in strategies().items() if kind.optimizer == "sgd"])
def test_optimizers_that_do_not_step_as_assumed_are_refused(name):
    torch = pytest.importorskip("torch", reason="torch is not installed: there is no optimizer")
    from shardwise.plugins.sync._simulate import check_optimizer

    weights = [torch.nn.Parameter(torch.zeros(1))]
    check_optimizer(strategy(name), torch.optim.SGD(weights, lr=0.1))
    for wrong in (torch.optim.AdamW(weights), torch.optim.SGD(weights, lr=0.1, momentum=0.9)):
        with pytest.raises(ValueError, match=f"optimizer: {name} assumes"):
            check_optimizer(strategy(name), wrong)
