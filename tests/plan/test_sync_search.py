"""A search over strategies: exact for each, ranked by the time to the same loss, and nothing else changed."""

import pytest

from shardwise.plan import Limits, scan
from shardwise.plan.bounded import plain
from shardwise.plan.constraints import constraints_of
from shardwise.plan.scanning import Pricing
from shardwise.plan.space import space
from shardwise.plan.synced import scan_over
from shardwise.spec.arch import model_of
from shardwise.spec.job import Job, optimizer_of
from shardwise.spec.load import cluster_of
from shardwise.spec.software import stack_of
from shardwise.step.estimate.synced import choice_of, choices_of
from shardwise.work.case import case_of

JOB = Job(seq=4096, global_batch=32)
CASE = case_of(model_of("llama-3-8b"), cluster_of("2x8xa100-80"), JOB, stack_of("megatron-core"))
LIMITS = Limits(micro_batch=2, vpp=2, orders=("tp-cp-dp-pp", "tp-pp-cp-dp"))
FIXED = constraints_of(["overlap_param=on", "overlap_tp=off", "overlap_pp=on", "overlap_grad=on"])


@pytest.mark.parametrize("text", ["dsgd", "mem_sgd", "diloco,every=64", "power_sgd", "hierarchical,size=2"])
def test_bounds_lose_nothing_with_a_strategy(text):
    settings = {"limits": LIMITS, "only": FIXED, "losers": False, "top": 5, "sync": choice_of(text)}
    quick, slow = scan(CASE, **settings), scan(CASE, **settings, bounded=False)
    assert [c.step_s for c in quick.best] == pytest.approx([c.step_s for c in slow.best])
    assert [c.policy for c in quick.best] == [c.policy for c in slow.best]
    assert quick.evaluated < slow.evaluated


def test_no_floor_is_above_a_step_where_nobody_waits():
    """On a stack whose nodes lose time waiting for each other, which workers that do not wait keep."""
    job = Job(seq=1024, global_batch=2**17, optimizer=optimizer_of("sgd"))
    case = case_of(model_of("gpt2"), cluster_of("dgx-h100:512"), job, stack_of("megatron-core@2021"))
    frames = space(case, LIMITS, constraints_of(["zero=0"])).frames
    pricing = Pricing(case, choice_of("async_sgd"))
    assert (pricing.floors(frames) <= pricing.price(plain(frames)).steps).all()


def test_ranked_by_the_time_to_the_same_loss():
    ranked, each = scan_over(choices_of("psgd,dsgd,diloco,every=64,mem_sgd", "adamw"), CASE, 5, None, limits=LIMITS)
    steps = [c.step_s * (1.0 + (c.extra.share if c.extra else 0.0)) for c in ranked.best]
    assert steps == sorted(steps)
    assert [best.text for best in each if best.candidate is None] == []
    found = {best.text: best.candidate for best in each}
    assert found["dsgd"].to_loss_s > found["dsgd"].step_s
    assert found["dsgd"].policy.sync == "dsgd"
    assert found["psgd"].policy.sync == ""
    plain = scan(CASE, limits=LIMITS)
    assert found["psgd"].step_s == plain.best[0].step_s
    assert ranked.losers == plain.losers


def test_what_cannot_run_is_left_out_with_the_reason():
    _, each = scan_over(choices_of("psgd,one_bit_adam", "adamw"), CASE, 3, None, limits=LIMITS)
    assert each[-1].candidate is None
    assert "--optimizer sgd" in each[-1].why
    with pytest.raises(ValueError, match="optimizer sgd"):
        scan_over(choices_of("one_bit_adam", "adamw"), CASE, 3, None, limits=LIMITS)
