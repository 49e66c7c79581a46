"""The problem is the closed form's: same step as the estimate; memory decides what recomputes."""

import pytest
from msgspec.structs import replace

from shardwise.plan.search.methods import method_of
from shardwise.plan.search.problems import GpuGroup, stage_problem
from shardwise.spec.arch import model_of
from shardwise.spec.job import Job
from shardwise.spec.load import cluster_of
from shardwise.spec.policy import Policies, Policy
from shardwise.spec.software import stack_of
from shardwise.step.estimate.closed_form import estimate
from shardwise.work.case import case_of

CORE = stack_of("megatron-core")
LLAMA = model_of("llama-3-8b")
JOB = Job(seq=8192, global_batch=64)


def on(cluster, model=LLAMA):
    return case_of(model, cluster_of(cluster) if isinstance(cluster, str) else cluster, JOB, CORE)


H100, A100 = on("8xh100"), on("8xa100-80")


@pytest.mark.parametrize(
    ("name", "on", "policy", "batch"),
    [
        ("llama-3-8b", "8xh100", Policy(pp=8), 64),
        ("llama-3-70b", "dgx-h100:64", Policy(pp=8, tp=8), 64),
        ("gpt-3-175b", "dgx-h100:256", Policy(pp=16, tp=8, dp=2, vpp=2, schedule="interleaved"), 128),
        ("deepseek-v3", "h800:2048", Policy(pp=16, dp=128, ep=64), 2048),
    ],
)
def test_the_even_split_costs_what_the_estimate_says(name, on, policy, batch):
    model, cluster, job = model_of(name), cluster_of(on), Job(seq=2048, global_batch=batch)
    problem = stage_problem([GpuGroup(case_of(model, cluster, job, CORE), policy.pp)], policy)
    priced = problem.price(problem.default[None])
    told = estimate(case_of(model, cluster, job, CORE), Policies.of([policy]), every_stage=True)
    assert told.fits[0]
    assert priced.over[0] == 0
    assert priced.seconds[0] == pytest.approx(float(told.times.step_s[0]), rel=1e-9)


def test_the_head_gives_layers_away():
    problem = stage_problem([GpuGroup(H100, 8)], Policy(pp=8))
    even, best = (problem.assignment(p) for p in (problem.default, method_of("dp").solve(problem).point))
    assert sum(best.layers) == 32
    assert best.layers[-1] < even.layers[-1]
    assert max(best.stage_s) < max(even.stage_s)


def test_one_stage_holds_everything():
    problem = stage_problem([GpuGroup(on("8xh200"), 1)], Policy(dp=8))
    assert problem.assignment(method_of("dp").solve(problem).point).layers == (32,)


def test_layers_of_several_kinds():
    policy, job = Policy(pp=16, dp=128, ep=64), Job(seq=4096, global_batch=2048)
    case = case_of(model_of("deepseek-v3"), cluster_of("h800:2048"), job, CORE)
    problem = stage_problem([GpuGroup(case, 16)], policy)
    even, best = (problem.assignment(p) for p in (problem.default, method_of("dp").solve(problem).point))
    assert sum(best.layers) == 61
    assert max(best.stage_s) <= max(even.stage_s)


def test_nothing_fits():
    problem = stage_problem([GpuGroup(on("8xh100", model_of("llama-3-70b")), 8)], Policy(pp=8))
    found = method_of("dp").solve(problem)
    assert found.point is None
    assert found.proven
    assert problem.price(problem.default[None]).over[0] > 0


def test_tight_memory_recomputes():
    problems = [stage_problem([GpuGroup(H100, 8)], Policy(pp=8), headroom=h) for h in (1.0, 0.4)]
    roomy, tight = (problem.assignment(method_of("dp").solve(problem).point) for problem in problems)
    assert sum(roomy.recomputed) == 0
    assert sum(tight.recomputed) > 0
    assert max(tight.peak_bytes) <= 0.4 * H100.cluster.gpu.memory_bytes < max(roomy.peak_bytes)
    assert tight.recomputed[0] >= tight.recomputed[6], "the first stages hold most micro-batches"


def mixed(stage_tp=(), first=H100, second=A100):
    policy = Policy(pp=4, dp=2, tp=2)
    return stage_problem([GpuGroup(first, 2), GpuGroup(second, 2)], policy, stage_tp=stage_tp)


def test_slower_gpus_get_fewer_layers():
    problem = mixed()
    held = problem.assignment(method_of("dp").solve(problem).point)
    layers = {name: [n for n, o in zip(held.layers, held.options, strict=True) if problem.options[o].cluster == name]
              for name in (H100.cluster.name, A100.cluster.name)}  # fmt: skip
    assert len(layers[H100.cluster.name]) == len(layers[A100.cluster.name]) == 2
    assert min(layers[H100.cluster.name]) > max(layers[A100.cluster.name])


def test_two_equal_groups_are_one():
    one = stage_problem([GpuGroup(on("2x8xh100"), 4)], Policy(pp=4, dp=2, tp=2))
    half = on(replace(cluster_of("2x8xh100"), gpus=8))
    two = mixed(first=half, second=half)
    assert method_of("dp").solve(two).objective_s == pytest.approx(method_of("dp").solve(one).objective_s)


def test_more_degrees_never_hurt():
    fixed, free = mixed(), mixed(stage_tp=(2, 4, 1))
    assert {o.policy.tp for o in free.options} == {2, 4}  # tp 1 would need half a sequence
    assert all(o.policy.dp * o.policy.micro_batch == 2 for o in free.options)
    assert method_of("dp").solve(free).objective_s <= method_of("dp").solve(fixed).objective_s
    assert method_of("ip").solve(free).objective_s == pytest.approx(method_of("dp").solve(free).objective_s)


@pytest.mark.parametrize(
    ("groups", "policy", "more", "words"),
    [
        ([GpuGroup(H100, 3)], Policy(pp=4), {}, "pp 4"),
        ([GpuGroup(H100, 3)], Policy(pp=3), {}, "do not divide"),
        ([GpuGroup(H100, 1)] * 3, Policy(pp=3), {}, "one or two"),
        ([GpuGroup(H100, 4)], Policy(pp=4, tp=2), {"stage_tp": (3,)}, "no degree of 3"),
        ([GpuGroup(H100, 4)], Policy(pp=4, tp=2), {"headroom": 2.0}, "headroom"),
    ],
)
def test_what_cannot_be_is_refused(groups, policy, more, words):
    with pytest.raises(ValueError, match=words):
        stage_problem(groups, policy, **more)
