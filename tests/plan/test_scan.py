"""The scan: ranked by time among what fits, with bounds that lose nothing."""

import numpy as np
import pytest

from shardwise.plan import Limits, bounded, scan, scanning, space, table_of
from shardwise.plan.constraints import constraints_of
from shardwise.plan.every import every
from shardwise.plan.exhaustive import losers_of
from shardwise.plan.keep import Keep, PricedPolicies
from shardwise.plan.least import least_bytes
from shardwise.spec.arch import model_of
from shardwise.spec.job import Job
from shardwise.spec.load import cluster_of
from shardwise.spec.policy import Policies, Policy
from shardwise.spec.software import stack_of
from shardwise.step.estimate.closed_form import estimate
from shardwise.work.case import case_of

STACK = stack_of("megatron-core")
MODEL, CLUSTER, JOB = model_of("llama-3-8b"), cluster_of("8xa100-40"), Job(seq=8192, global_batch=32)
SMALL = Limits(micro_batch=1, vpp=2, orders=("tp-cp-dp-pp", "tp-pp-cp-dp"))


def test_the_best_is_the_fastest_that_fits():
    policies = table_of(space(case_of(MODEL, CLUSTER, JOB, STACK), SMALL))
    every = estimate(case_of(MODEL, CLUSTER, JOB, STACK), policies, every_stage=True)
    ranked = scan(case_of(MODEL, CLUSTER, JOB, STACK), top=5, limits=SMALL)
    fits = every.memory.peak <= ranked.limit_bytes
    assert ranked.best[0].step_s == pytest.approx(every.times.step_s[fits].min())
    assert [c.step_s for c in ranked.best] == sorted(c.step_s for c in ranked.best)
    assert all(c.peak_bytes <= ranked.limit_bytes for c in ranked.best)
    assert ranked.points == len(policies)
    assert ranked.evaluated < len(policies) / 10
    assert ranked.best[0].tokens_per_s_per_gpu * ranked.best[0].step_s * 8 == pytest.approx(JOB.step_tokens)


@pytest.mark.parametrize(
    ("model", "cluster", "stack", "headroom", "only"),
    [
        ("llama-3-8b", "4xh100", "megatron-core", 0.94, []),
        ("llama-3-8b", "8xa100-40", "megatron-core", 0.94, ["micro=1"]),
        ("llama-3-8b", "4xa100-80", "torchtitan", 0.9, ["schedule!=looped_bfs"]),
        ("llama-3-8b", "8xa100-40", "nanotron", 1.0, []),
        ("llama-3-8b", "8xh100", "llm-foundry", 0.6, []),
        ("llama-3-70b", "8xh100", "megatron-core", 1.0, ["offload!=activations", "micro=1"]),
        ("mixtral-8x7b", "2x8xh100", "megatron-core", 0.9, ["recompute_layers<2", "micro=1", "cp=1"]),
        ("llama-3-8b", "8xa100-40", "megatron-core", 0.94, ["recompute=full"]),
        ("llama-3-8b", "8xa100-40", "megatron-core", 0.94, ["offload=both", "shard_group=2"]),
        ("llama-3-8b", "8xa100-40", "megatron-core", 0.94, ["overlap_grad=off", "recompute=selective"]),
        ("llama-3.1-405b", "8xh100", "megatron-core", 0.94, ["micro=1", "sp=on"]),
        ("nemotron-h-8b", "8xh100", "megatron-core", 0.94, ["micro=1", "offload=none"]),
    ],
)
def test_bounds_lose_nothing(model, cluster, stack, headroom, only):
    """The same answers as from estimating every policy: the list, the best of each kind, the smallest."""
    given = (model_of(model), cluster_of(cluster), Job(seq=4096, global_batch=16), stack_of(stack))
    limits = Limits(micro_batch=2, vpp=2, orders=SMALL.orders)
    # that overlap never costs anything is one of the bounds: where nothing else is asked one of them may be off
    names = [n for n in ("overlap_param", "overlap_tp", "overlap_pp", "overlap_grad") if n not in str(only)]
    fixed = [f"{name}={'on' if given[3].setting(name) else 'off'}" for name in names]
    free = constraints_of([*only, *(fixed if only else fixed[1:])])
    quick = scan(case_of(*given), limits=limits, headroom=headroom, only=free, risk=0.3)
    slow = scan(case_of(*given), limits=limits, headroom=headroom, only=free, risk=0.3, bounded=False)
    assert slow.evaluated == slow.points == quick.points
    # with activations in the host's memory no bound holds, and everything is looked at
    assert quick.evaluated < slow.evaluated or any(text.startswith("offload") for text in only)
    assert [c.policy for c in quick.best] == [c.policy for c in slow.best]
    assert [(x.kind, x.policy, x.why) for x in quick.losers] == [(x.kind, x.policy, x.why) for x in slow.losers]
    assert (quick.smallest is None) == (slow.smallest is None)
    if slow.smallest is not None:
        assert quick.smallest.policy == slow.smallest.policy


def test_a_step_that_is_enough_shortens_the_scan_and_changes_no_answer():
    case = case_of(MODEL, CLUSTER, JOB, STACK)
    whole = scan(case, limits=SMALL, losers=False, top=3)
    enough = scan(case, limits=SMALL, losers=False, top=3, at_most_s=whole.best[1].step_s)
    assert [found.policy for found in enough.best] == [found.policy for found in whole.best[:2]]
    none = scan(case, limits=SMALL, losers=False, top=3, at_most_s=0.99 * whole.best[0].step_s)
    assert not none.best
    assert none.evaluated < whole.evaluated


@pytest.mark.parametrize("host_gib", [0, 45, 90])
def test_a_small_host_loses_nothing_that_it_can_hold(host_gib):
    """All of the optimizer is 90 GiB; where a pipeline's ends are fuller than its middle, some policies need more."""
    box = cluster_of("4xa100-40")
    case = case_of(MODEL, box.with_host_memory(host_gib * 2.0**30), JOB, STACK)
    only = constraints_of(["micro=1", *(f"{name}={'on' if on else 'off'}" for name, on in STACK.overlaps.items())])
    given = {"limits": SMALL, "top": 3, "only": only}
    quick, slow = scan(case, **given), scan(case, **given, bounded=False)
    assert [found.policy for found in quick.best] == [found.policy for found in slow.best]
    for found in quick.best:
        held = estimate(case, Policies.of([found.policy])).memory.host_bytes[0]
        assert held * 4 <= host_gib * 2**30
    anywhere = scan(case_of(MODEL, box.with_host_memory(2.0**50), JOB, STACK), **given)
    assert quick.best[0].step_s >= anywhere.best[0].step_s if quick.best else anywhere.best


@pytest.mark.parametrize("name", ["llama-3-8b", "deepseek-v2-lite", "gpt-oss-20b", "nemotron-3-nano"])
def test_leaders_and_losers_are_what_estimating_them_alone_gives(name):
    """Also where layers do not divide by stages and kinds of layers are mixed."""
    model, cluster, job = model_of(name), cluster_of("dgx-h100:96"), Job(seq=4096, global_batch=192)
    ranked = scan(case_of(model, cluster, job, stack_of("nanotron")), headroom=1.0)
    assert ranked.best
    for found in (*ranked.best, *ranked.losers):
        alone = estimate(
            case_of(model, cluster, job, stack_of("nanotron")), Policies.of([found.policy]), every_stage=True
        )
        assert alone.times.step_s[0] == pytest.approx(found.step_s, rel=1e-12)
        assert alone.memory.peak[0] == pytest.approx(found.peak_bytes, rel=1e-12)


def answers(ranked):
    return [c.policy for c in ranked.best], [(x.kind, x.policy) for x in ranked.losers], ranked.points


def test_blocks_and_processes_change_nothing(monkeypatch):
    whole = scan(case_of(MODEL, CLUSTER, JOB, STACK))
    monkeypatch.setattr(bounded, "BLOCK", 37)
    monkeypatch.setattr(scanning, "FRAMES", 100)
    seen = []
    parts = scan(case_of(MODEL, CLUSTER, JOB, STACK), progress=lambda done, of: seen.append((done, of)))
    assert answers(parts) == answers(whole)
    assert seen[-1][0] == seen[-1][1] > 100
    assert len(seen) == -(-seen[-1][1] // 100)
    monkeypatch.setattr(scanning, "FEW", 0)
    assert answers(scan(case_of(MODEL, CLUSTER, JOB, STACK), processes=2)) == answers(whole)


def test_ctrl_c_ranks_what_there_is(monkeypatch):
    monkeypatch.setattr(scanning, "FRAMES", 20)

    def stop(done, _of):
        if done >= 40:
            raise KeyboardInterrupt

    whole = scan(case_of(MODEL, CLUSTER, JOB, STACK), bounded=False, limits=SMALL)
    ranked = scan(case_of(MODEL, CLUSTER, JOB, STACK), bounded=False, limits=SMALL, progress=stop)
    assert whole.finished
    assert not ranked.finished
    assert 0 < ranked.evaluated < whole.evaluated
    assert ranked.best


def test_nothing_fits_names_the_smallest():
    ranked = scan(case_of(model_of("llama-3.1-405b"), cluster_of("8xh100"), Job(seq=8192, global_batch=64), STACK))
    assert ranked.best == ()
    assert ranked.losers == ()
    assert ranked.smallest.peak_bytes > ranked.limit_bytes
    assert ranked.fitting == 0


@pytest.mark.parametrize(
    ("model", "cluster", "stack", "only"),
    [
        ("llama-3.1-405b", "8xh100", "megatron-core", ["schedule!=looped_bfs"]),
        ("llama-3.1-405b", "8xh100", "deepspeed", []),
        ("mixtral-8x22b", "4xh100", "torch-eager", ["micro=1"]),
        ("llama-3-70b", "4xa100-40", "megatron-core", ["recompute_layers=3", "recompute=full"]),
        ("llama-3-70b", "4xa100-40", "torchtitan", ["shard_group=2"]),
    ],
)
def test_no_policy_needs_less_than_its_frame(model, cluster, stack, only):
    """What memory alone says of a frame holds for every setting of it, and one of them needs no more."""
    roomy = cluster_of(cluster).with_host_memory(2.0**60)
    case = case_of(model_of(model), roomy, Job(seq=4096, global_batch=16), stack_of(stack))
    found = space(case, Limits(micro_batch=2, vpp=2), constraints_of(only))
    pricing = scanning.Pricing(case)
    least = least_bytes(found, pricing.peaks, any_host=True)
    reached = 0
    for frame in range(0, len(found.frames), max(len(found.frames) // 40, 1)):
        held = np.concatenate([[np.inf], *(pricing.peaks(batch) for batch in every(found, np.array([frame])))])
        assert held.min() >= least[frame] * (1 - 1e-12)
        reached += bool(held.min() == pytest.approx(least[frame]))
    assert reached or "recompute_layers=3" in only


def test_memory_tells_that_nothing_fits_before_anything_is_priced():
    """Hardly a frame is priced, however many there are, and the smallest is the one a scan of all finds."""
    case = case_of(model_of("mixtral-8x22b"), cluster_of("8xh100"), Job(seq=8192, global_batch=64), STACK)
    limits = Limits(micro_batch=4)
    quick, slow = scan(case, limits=limits), scan(case, limits=limits, bounded=False, losers=False)
    assert quick.best == slow.best == ()
    assert quick.smallest == slow.smallest
    assert quick.points == slow.points
    assert quick.evaluated < quick.points / 100


def test_few_that_fit_are_found_where_the_fastest_do_not(monkeypatch):
    """The most promising frames are too large: memory alone says which of the others are looked at."""
    monkeypatch.setattr(scanning, "FIRST_BLOCK", 8)
    tight = {"headroom": 0.5, "losers": False}
    case = case_of(MODEL, CLUSTER, JOB, STACK)
    quick, slow = scan(case, **tight), scan(case, bounded=False, limits=Limits(), **tight)
    assert [found.policy for found in quick.best] == [found.policy for found in slow.best] != []


def test_less_headroom_never_helps():
    tight = scan(case_of(MODEL, CLUSTER, JOB, STACK), headroom=0.4)
    assert tight.best[0].step_s >= scan(case_of(MODEL, CLUSTER, JOB, STACK)).best[0].step_s


def test_without_losers_the_best_is_the_same():
    short = scan(case_of(MODEL, CLUSTER, JOB, STACK), losers=False)
    assert [c.policy for c in short.best] == [c.policy for c in scan(case_of(MODEL, CLUSTER, JOB, STACK)).best]
    assert short.losers == ()


@pytest.mark.parametrize(
    ("options", "word"), [({"headroom": 0.0}, "headroom"), ({"headroom": 2}, "headroom"), ({"top": 0}, "top")]
)
def test_bad_options(options, word):
    with pytest.raises(ValueError, match=f"^{word}: .*; write"):
        scan(case_of(MODEL, CLUSTER, JOB, STACK), **options)


def test_losers_on_hand_made_numbers():
    policies = Policies.of([Policy(tp=2, zero=1), Policy(zero=1), Policy(tp=2, zero=3), Policy(tp=2, pp=2, zero=1)])
    keep = Keep(60.0 * 2**30, 5)
    keep.add(PricedPolicies(policies, np.array([1.0, 0.5, 1.25, 2.0]), np.array([50.0, 90.0, 40.0, 30.0]) * 2**30))
    why = {loser.kind: loser.why for loser in losers_of(keep)}
    assert why["no tensor parallelism"] == "needs 30.0 GiB more than may be filled"
    assert why["ZeRO 3"] == "step +25.0%"
    assert why["a pipeline"] == "step +100.0%"
    assert "tensor parallelism" not in why
    assert "ZeRO 2" not in why
