"""Every strategy, alone and combined, trains as one process does: losses, gradients and gradient norms."""

from functools import cache

import numpy as np
import pytest
from msgspec.structs import replace

pytestmark = pytest.mark.xdist_group("trained")  # they share what a fixture of theirs computes

torch = pytest.importorskip("torch")
from training import MODELS, Trained, assembled, task_of, together, train  # noqa: E402

from shardwise.run.runtime.parallel import flat  # noqa: E402
from shardwise.spec.policy import Policy  # noqa: E402

STEPS = 2
CASES = {
    2: {
        "dp": ("llama", Policy(dp=2, zero=0)),
        "dp, no overlap": ("gpt", Policy(dp=2, zero=0, overlap_grad=False)),
        "zero 1": ("llama", Policy(dp=2, zero=1, micro_batch=2)),
        "zero 2": ("gpt", Policy(dp=2, zero=2)),
        "zero 3": ("llama", Policy(dp=2, zero=3)),
        "zero 3, tied": ("gpt", Policy(dp=2, zero=3, micro_batch=2)),
        "tp": ("gpt", Policy(tp=2, sp=False)),
        "tp with sequence parallel": ("llama", Policy(tp=2)),
        "tp with sequence parallel, gpt": ("gpt", Policy(tp=2, micro_batch=2)),
        "pp 1f1b": ("gpt", Policy(pp=2)),
        "cp": ("llama", Policy(cp=2)),
        "experts, dp": ("moe", Policy(dp=2, zero=0)),
        "ep": ("moe", Policy(dp=2, ep=2)),
        "experts cut by tp": ("moe", Policy(tp=2)),
        "full recompute": ("llama", Policy(tp=2, recompute="full")),
        "some layers recompute": ("gpt", Policy(dp=2, recompute="full", recompute_layers=2)),
        "more tp ranks than key/value heads": ("mqa", Policy(tp=2)),
        "tied, folded stages": ("gpt", Policy(pp=2, vpp=2, schedule="zb_v")),
        "dualpipe, tied": ("gpt", Policy(pp=2, schedule="dualpipe")),
        "shards of unequal length": ("odd", Policy(dp=2, zero=3)),
        "latent attention": ("mla", Policy(tp=2)),
        "latent attention without sequence parallel": ("mla", Policy(tp=2, sp=False)),
        "latent attention over cp": ("mla", Policy(cp=2)),
        "latent attention, split backward": ("mla", Policy(pp=2, schedule="zero_bubble_h1")),
        "moments on the host": ("gpt", Policy(dp=2, zero=1, offload="optimizer")),
        "plain attention": ("llama", Policy(dp=2, attention="plain")),
        "selective recompute": ("llama", Policy(dp=2, attention="plain", recompute="selective")),
    },
    4: {
        "hsdp": ("llama", Policy(dp=4, zero=3, shard_group=2)),
        "zero 1 over half of dp": ("llama", Policy(dp=4, zero=1, shard_group=2)),
        "dp x tp": ("gpt", Policy(dp=2, tp=2, zero=1)),
        "zero 3 x tp": ("gpt", Policy(dp=2, tp=2, zero=3)),
        "zero 2 x tp": ("llama", Policy(dp=2, tp=2, zero=2)),
        "pp x zero 3": ("llama", Policy(pp=2, dp=2, zero=3)),
        "pp x tp, tied": ("gpt", Policy(pp=2, tp=2)),
        "cp x tp": ("llama", Policy(cp=2, tp=2)),
        "cp x dp, zero 3": ("gpt", Policy(cp=2, dp=2, zero=3)),
        "ep over tp and dp": ("moe", Policy(dp=2, tp=2, ep=4)),
        "ep, zero 3": ("moe", Policy(dp=4, ep=2, zero=3)),
        "ep x cp": ("moe", Policy(dp=2, cp=2, ep=2)),
        "pp x ep": ("moe", Policy(pp=2, dp=2, ep=2)),
        "ep x etp": ("moe", Policy(dp=2, tp=2, ep=2, etp=2)),
        "ep x etp over dp": ("moe", Policy(dp=4, ep=2, etp=2)),
        "experts, hsdp": ("moe", Policy(dp=4, zero=3, shard_group=2)),
        "ep, zero 1 over half of dp": ("moe", Policy(dp=4, ep=2, zero=1, shard_group=2)),
        "experts whole on every tp rank": ("moe", Policy(dp=2, tp=2, etp=1)),
        "tied, zero 2 x pp": ("gpt", Policy(pp=2, dp=2, zero=2)),
        "tied, folded stages x zero 2": ("gpt", Policy(pp=2, vpp=2, schedule="zb_v", dp=2, zero=2)),
        "tied, folded stages x zero 3": ("gpt", Policy(pp=2, vpp=2, schedule="zb_v", dp=2, zero=3)),
        "two key/value heads on four tp ranks": ("few heads", Policy(tp=4)),
        "the same without sequence parallel": ("few heads", Policy(tp=4, sp=False)),
        "copied key/value heads x zero 3": ("mqa", Policy(dp=2, tp=2, zero=3)),
        "pp 4": ("llama", Policy(pp=4)),
    },
}
EIGHT = {
    "pp x dp x tp, zero 3": ("llama", Policy(pp=2, dp=2, tp=2, zero=3)),
    "pp x cp x tp": ("gpt", Policy(pp=2, cp=2, tp=2)),
    "pp x tp x dp x ep": ("moe", Policy(pp=2, tp=2, dp=2, ep=2, zero=1)),
    "dp x tp x ep": ("moe", Policy(dp=4, tp=2, ep=4, zero=1)),
    "dp x tp x ep, zero 3": ("moe", Policy(dp=4, tp=2, ep=8, zero=3)),
    "zb_v x tp x zero 3": ("llama", Policy(pp=2, vpp=2, schedule="zb_v", tp=2, dp=2, zero=3)),
    "cp x tp x dp, recompute": ("llama", Policy(cp=2, tp=2, dp=2, recompute="full")),
}


@cache
def alone(name: str, steps: int) -> Trained:
    return train(task_of(MODELS[name], Policy(zero=0)), steps)


def hold_together(name: str, ranks: list[Trained], steps: int) -> None:
    reference = alone(name, steps)
    for rank in ranks:
        assert rank.losses == pytest.approx(reference.losses, abs=1e-5)
        assert rank.norms == pytest.approx(reference.norms, rel=1e-4)
    for which in ("pieces", "last"):
        whole, expected = assembled(ranks, which), assembled([reference], which)
        assert whole.keys() == expected.keys()
        for key, gradient in expected.items():
            assert np.abs(whole[key] - gradient).max() <= 1e-5, (which, key)
            assert np.abs(gradient).max() > 0, f"{key} never entered the loss"


@pytest.fixture(scope="module")
def trained():
    """The results of all cases with so many ranks: started once."""

    @cache
    def of(ranks: int) -> dict[str, list[Trained]]:
        cases = CASES[ranks]
        found = together([task_of(MODELS[name], policy) for name, policy in cases.values()], STEPS)
        return dict(zip(cases, found, strict=True))

    return of


@pytest.mark.parametrize("case", CASES[2])
def test_two_ranks(case: str, trained) -> None:
    hold_together(CASES[2][case][0], trained(2)[case], STEPS)


@pytest.mark.parametrize("case", CASES[4])
def test_four_ranks(case: str, trained) -> None:
    hold_together(CASES[4][case][0], trained(4)[case], STEPS)


@pytest.mark.parametrize("overlap", [True, False])
def test_gradients_in_many_messages(overlap: bool) -> None:
    """Small buckets that cut through parameters, leaving under the backward pass or after it."""
    tasks = [task_of(MODELS["gpt"], Policy(dp=2, zero=zero, overlap_grad=overlap)) for zero in (0, 1, 2)]
    tasks = [replace(task, stack=task.stack.changed(bucket_bytes=9_000.0)) for task in tasks]
    for of_task in together(tasks, STEPS):
        hold_together("gpt", of_task, STEPS)


def test_gradients_that_their_product_adds_up(monkeypatch) -> None:
    """As on a GPU: none leaves before all of its message are there, which autograd says once for each."""
    monkeypatch.setattr(flat, "TAKEN_ON", ("cpu",))
    policies = [Policy(dp=2, zero=0), Policy(dp=2, zero=1), Policy(dp=2, zero=2), Policy(cp=2)]
    for of_task in together([task_of(MODELS["gpt"], policy) for policy in policies], STEPS):
        hold_together("gpt", of_task, STEPS)


CUTS = [
    (Policy(cp=2), {"context_parallel": "ulysses"}),
    (Policy(cp=2), {"context_parallel": "gather"}),
    (Policy(tp=2), {"embedding": "broadcast"}),
    (Policy(tp=2, sp=False), {"embedding": "broadcast"}),
    (Policy(tp=2), {"attention_split": "gather-qk"}),
    (Policy(tp=2, sp=False, recompute="full"), {"attention_split": "gather-qk"}),
]


def test_other_cuts() -> None:
    """Heads exchanged for sequence, keys and values gathered; a table on one rank; queries and keys gathered."""
    tasks = [task_of(MODELS["llama"], policy, cuts=cuts) for policy, cuts in CUTS]
    for of_task in together(tasks, STEPS):
        hold_together("llama", of_task, STEPS)


@pytest.mark.slow
def test_four_axes_on_sixteen_ranks_over_twenty_steps() -> None:
    """Data, tensor, pipeline and context parallelism at once, then experts over some of them."""
    cases = [
        ("llama", Policy(dp=2, tp=2, pp=2, cp=2)),
        ("llama", Policy(dp=2, tp=2, pp=2, cp=2, zero=3)),
        ("moe", Policy(dp=2, tp=2, pp=2, cp=2, ep=4, zero=1)),
    ]
    found = together([task_of(MODELS[name], policy) for name, policy in cases], 20)
    for (name, _), of_case in zip(cases, found, strict=True):
        hold_together(name, of_case, 20)


@pytest.mark.slow
@pytest.mark.parametrize("case", EIGHT)
def test_eight_ranks_over_twenty_steps(case: str) -> None:
    name, policy = EIGHT[case]
    hold_together(name, together([task_of(MODELS[name], policy)], 20)[0], 20)


@pytest.mark.slow
@pytest.mark.parametrize("ranks", CASES)
def test_all_over_twenty_steps(ranks: int) -> None:
    cases = CASES[ranks]
    found = together([task_of(MODELS[name], policy) for name, policy in cases.values()], 20)
    for (name, _), of_case in zip(cases.values(), found, strict=True):
        hold_together(name, of_case, 20)


def test_a_wrong_gradient_is_seen() -> None:
    """Two ranks that never add up their gradients: the comparison above must fail."""
    reference = alone("llama", STEPS)
    half = [(*p[:-1], p[-1] * 0.5) for p in reference.pieces]
    for first, last in ((half, reference.last), (reference.pieces, half)):
        with pytest.raises(AssertionError):
            hold_together("llama", [Trained(reference.losses, reference.norms, first, last)], STEPS)
