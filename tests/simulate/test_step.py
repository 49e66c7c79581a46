"""Whole steps of real models: held against the closed form, with stragglers and jitter, and against the published."""

import numpy as np
import pytest
from msgspec.structs import replace

from shardwise.plan import Limits, space, table_of
from shardwise.plan.constraints import constraints_of
from shardwise.spec.arch import model_of
from shardwise.spec.job import Job
from shardwise.spec.load import cluster_of
from shardwise.spec.policy import Policy
from shardwise.spec.rules import verdict_of
from shardwise.spec.software import stack_of
from shardwise.step.estimate.closed_form import estimate
from shardwise.step.simulate import Jitter, Straggler, simulate
from shardwise.step.simulate.agree import gap_of
from shardwise.step.simulate.compare import compare
from shardwise.step.simulate.noise import straggler_of
from shardwise.work.case import case_of

LLAMA = model_of("llama-3-8b")
CLUSTER = cluster_of("dgx-h100:64")
JOB = Job(seq=8192, global_batch=256)
CORE = stack_of("megatron-core")
USUAL = Limits(some_layers=False, offload=("none",), orders=("tp-cp-dp-pp",), shard_groups=False)
OVERLAPPED = constraints_of(["overlap_grad=on,overlap_param=on,overlap_tp=on,overlap_pp=on"])

PIPELINES = [
    Policy(dp=8, pp=8),
    Policy(dp=8, pp=8, overlap_pp=False),
    Policy(dp=8, pp=8, schedule="gpipe", overlap_pp=False),
    Policy(dp=8, pp=8, vpp=4, schedule="interleaved"),
    Policy(dp=4, tp=2, pp=8, vpp=2, schedule="interleaved", recompute="full"),
    Policy(dp=16, tp=1, pp=4, recompute="selective", zero=0),
    Policy(dp=8, pp=8, vpp=2, schedule="looped_bfs"),
]


CASE = case_of(LLAMA, CLUSTER, JOB, CORE)


def one(policy, model=LLAMA, job=JOB, stack=CORE, **more):
    return simulate(case_of(model, CLUSTER, job, stack), policy, **more)


@pytest.mark.parametrize("policy", PIPELINES, ids=lambda p: f"{p.schedule}-{p.pp}x{p.vpp}-{p.recompute}")
def test_even_pipelines_agree_within_one_percent(policy):
    """With ends that weigh nothing every stage is the same."""
    found = one(policy, model=replace(LLAMA, vocab=8))
    assert gap_of(found).share == pytest.approx(0.0, abs=0.01)


@pytest.mark.parametrize("policy", PIPELINES, ids=lambda p: f"{p.schedule}-{p.pp}x{p.vpp}-{p.recompute}")
@pytest.mark.parametrize("stack", ["megatron-core", "torchtitan", "nanotron"])
def test_peak_memory_is_the_closed_forms(policy, stack):
    software = stack_of(stack).changed(stage_split="even")
    found = one(policy, stack=software)
    peaks = [peak.bytes for peak in found.timeline().peaks()]
    assert peaks == pytest.approx(found.closed.memory.total[0].tolist(), rel=0.01)


@pytest.mark.parametrize("policy", [Policy(dp=64, zero=1), Policy(dp=16, pp=4), Policy(dp=8, tp=2, pp=4)])
def test_a_hybrid_agrees_too(policy):
    """Its stages are not alike: the closed form's bubble is the mean one."""
    found = one(policy, model=model_of("nemotron-h-8b"))
    assert gap_of(found).share == pytest.approx(0.0, abs=0.03)
    peaks = [peak.bytes for peak in found.timeline().peaks()]
    assert peaks == pytest.approx(found.closed.memory.total[0].tolist(), rel=0.01)


def test_a_tight_order_waits_for_transfers_in_both():
    """1F1B has no slack: what goes on in the background is waited for all the same, simulated and in closed form."""
    half = CORE.changed(hidden_share=0.5)
    slow, even = half.changed(transfer_overhead_s=5e-3), replace(LLAMA, vocab=8)
    beside, alone = (one(Policy(dp=8, pp=8, overlap_pp=o), stack=slow, model=even) for o in (True, False))
    free = one(Policy(dp=8, pp=8), stack=half, model=even)
    assert beside.step_s - free.step_s > 0.9 * (alone.step_s - free.step_s)
    for found in (beside, alone):
        assert gap_of(found).share == pytest.approx(0.0, abs=0.006)


def policies_that_fit(count, seed):
    generator = np.random.default_rng(seed)
    pools = []
    for name, on in (("llama-3-8b", "8xh100"), ("llama-3-70b", "dgx-h100:64"), ("gpt-3-175b", "dgx-h100:256"),
                     ("mixtral-8x7b", "dgx-a100:128"), ("deepseek-v3", "dgx-h100:1024")):  # fmt: skip
        model, cluster, job = model_of(name), cluster_of(on), Job(seq=4096, global_batch=1024)
        case = case_of(model, cluster, job, CORE)
        policies = table_of(space(case, USUAL, OVERLAPPED))
        fits = np.flatnonzero(estimate(case, policies).fits)
        pools += [(case, policies[int(i)]) for i in generator.choice(fits, count // 5)]
    return pools


def test_random_policies_agree_and_where_they_do_not_there_is_a_reason():
    found = [simulate(*given) for given in policies_that_fit(200, seed=1)]
    shares = np.array([abs(one.step_s / float(one.closed.times.step_s[0]) - 1) for one in found])
    assert len(shares) == 200
    assert np.median(shares) < 0.01
    assert shares.max() < 0.05
    far = np.flatnonzero(shares > 0.005)
    assert len(far)
    for gap in (gap_of(found[i]) for i in far):
        assert sum(gap.parts_s.values()) == pytest.approx(gap.simulated_s - gap.closed_s)
        assert gap.why


def test_a_slow_gpu_without_stages_slows_its_own_work():
    base, slow = one(Policy(dp=64)), one(Policy(dp=64), stragglers=[Straggler(stage=0, factor=1.2)])
    compute = base.costs.forward[0] + base.costs.backward[0]
    more = 0.2 * compute * base.program.micro_batches * (1 + base.costs.other_share)
    # a longer last backward hides a little more of the reduction
    assert slow.step_s - base.step_s == pytest.approx(more, rel=0.05)


def test_a_straggler_costs_at_most_its_factor_and_more_on_the_slowest_stage():
    base = one(Policy(dp=8, pp=8))
    steps = [one(Policy(dp=8, pp=8), stragglers=[Straggler(stage=s, factor=1.2)]).step_s for s in range(8)]
    assert all(base.step_s <= step <= 1.2 * base.step_s for step in steps)
    assert max(steps) == steps[7]  # the head makes the last stage the slowest


def test_jitter_repeats_with_its_seed_and_more_replicas_wait_longer():
    found = one(Policy(dp=8, pp=8))
    same = [found.step_samples(Jitter(share=0.05, steps=100, seed=1)) for _ in range(2)]
    other = found.step_samples(Jitter(share=0.05, steps=100, seed=2))
    assert np.array_equal(*same)
    assert not np.array_equal(same[0], other)
    none = found.step_samples(Jitter(share=0.0, steps=3))
    assert none == pytest.approx(found.busy_s + found.costs.other_s)
    p50, p99 = np.quantile(same[0], [0.5, 0.99])
    assert none[0] < p50 < p99
    lonely = simulate(case_of(LLAMA, cluster_of("8xh100"), replace(JOB, global_batch=32), CORE), Policy(pp=8))
    alone = lonely.step_samples(Jitter(share=0.05, steps=100, seed=1)).mean() / lonely.busy_s
    assert alone < same[0].mean() / found.busy_s


def test_exponential_jitter_only_adds():
    found = one(Policy(dp=16, tp=4))
    assert (found.step_samples(Jitter(share=0.05, steps=50, tail="exponential")) > found.busy_s).all()


def test_blocks_of_steps_are_as_good_as_one(monkeypatch):
    found = one(Policy(dp=8, pp=8))
    monkeypatch.setattr("shardwise.step.simulate.step.BLOCK", 1)
    assert len(found.step_samples(Jitter(share=0.05, steps=5))) == 5


@pytest.mark.parametrize(
    "text", ["", "stage=1", "factor=2", "stage=1,link=1,factor=2", "stage=x,factor=2", "stage=1.5,factor=2",
             "stage=-1,factor=2", "stage=1,factor=nan", "stage=1,factor=0", "stage=1,factor=2,color=3"],
)  # fmt: skip
def test_a_straggler_that_makes_no_sense_is_refused(text):
    with pytest.raises(ValueError, match="straggler"):
        straggler_of(text)


def test_a_straggler_that_is_not_there_is_refused():
    for text in ("stage=8,factor=2", "link=7,factor=2", "stage=0,factor=2,replicas=9"):
        with pytest.raises(ValueError, match="straggler"):
            one(Policy(dp=8, pp=8), stragglers=[straggler_of(text)])


def test_schedules_are_compared_fastest_first():
    rows = compare(case_of(LLAMA, CLUSTER, JOB, CORE), Policy(dp=16, pp=4))
    can = [row for row in rows if row.step_s is not None]
    assert [row.step_s for row in can] == sorted(row.step_s for row in can)
    by_name = {row.schedule: row for row in rows}
    assert by_name["gpipe"].peak_bytes > by_name["1f1b"].peak_bytes
    assert by_name["interleaved"].bubble_share < by_name["1f1b"].bubble_share
    assert by_name["zero_bubble_h1"].bubble_share < by_name["1f1b"].bubble_share


def test_schedules_that_do_not_apply_are_not_listed():
    assert "none" not in {row.schedule for row in compare(CASE, Policy(dp=16, pp=4))}
    alone = compare(CASE, Policy(dp=64))
    assert {row.schedule for row in alone} == {"1f1b", "gpipe", "none", "overlapped", "zero_bubble_h1"}
    assert not any(row.why_not for row in alone)


def test_bubble_means_the_same_in_both():
    """An uneven split: most stages wait for the longest, which is idle but not bubble."""
    plain, chunks = {"dp": 8, "pp": 8}, {"dp": 8, "pp": 8, "vpp": 2}
    for given in (plain, {**plain, "schedule": "gpipe"}, {"dp": 4, "tp": 2, "pp": 8, "zero": 2},
                  {**chunks, "schedule": "zb_v"}, {**chunks, "vpp": 3, "schedule": "interleaved"}):  # fmt: skip
        found = one(Policy(**given))
        timeline = found.timeline()
        assert timeline.bubble_share() == pytest.approx(float(found.closed.times.bubble_share[0]), abs=0.01)
        assert timeline.idle_share() > timeline.bubble_share()


@pytest.mark.parametrize("zero", [0, 1, 2, 3])
def test_without_stages_the_closed_form_is_met(zero):
    for policy in (Policy(dp=64, zero=zero), Policy(dp=8, tp=8, zero=zero, overlap_grad=False, overlap_param=False)):
        assert gap_of(one(policy)).share == pytest.approx(0.0, abs=0.02)


def test_offloaded_activations_are_copied():
    found = one(Policy(dp=8, pp=8, offload="activations"))
    spans = found.timeline().spans
    assert spans.of("copy").sum() == 2 * 8 * found.program.micro_batches
    gap = gap_of(found)
    # the stages' copies differ a little; the closed form takes them all as those of the slowest
    assert abs(gap.share) < 0.1


def test_lanes_carry_what_the_policy_sends():
    lanes = {
        "tp": Policy(dp=8, tp=8), "fsdp": Policy(dp=64, zero=3), "cp": Policy(dp=8, cp=8),
        "grad": Policy(dp=64), "param": Policy(dp=64), "pp": Policy(dp=8, pp=8),
    }  # fmt: skip
    for lane, policy in lanes.items():
        spans = one(policy).timeline().spans
        assert spans.of(lane).any(), lane
        assert spans.bytes[spans.of(lane)].min() > 0
        assert (spans.end_s >= spans.start_s).all()
    alone = (
        simulate(case_of(LLAMA, cluster_of("1xh200"), Job(seq=2048, global_batch=4), CORE), Policy()).timeline().spans
    )
    assert set(alone.lane.tolist()) == {0}


def test_llama_405b_on_16384_gpus_is_sixteen_classes():
    model, cluster = model_of("llama-3.1-405b"), cluster_of("dgx-h100:16384")
    job, policy = Job(seq=8192, global_batch=2048), Policy(tp=8, pp=16, dp=128, vpp=8, schedule="interleaved")
    assert verdict_of(model, cluster, job, policy).legal
    timeline = simulate(case_of(model, cluster, job, CORE), policy).timeline()
    assert timeline.ranks == 16
    assert timeline.gpus.sum() == 16_384


def test_layers_that_do_not_add_up_are_refused():
    with pytest.raises(ValueError, match="add up to 32"):
        one(Policy(dp=8, pp=8), rank_layers=[4] * 7 + [5])


def test_too_many_tasks_are_refused_before_they_are_built():
    with pytest.raises(ValueError, match="micro-batches"):
        one(Policy(dp=8, pp=8), job=Job(seq=128, global_batch=10**9))
