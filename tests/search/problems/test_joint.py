"""One search over policy and stages: its bounds lose nothing, and its answer is never worse than the plan's."""

from itertools import product

import numpy as np
import pytest
from msgspec.structs import replace

from shardwise.arch import model_of
from shardwise.case import case_of
from shardwise.estimate.closed_form import estimate
from shardwise.plan import scan, space
from shardwise.plan.constraints import constraints_of
from shardwise.plan.every import table_of
from shardwise.search.joint_parts import known_lines, levelled
from shardwise.search.joint_placement import placement_matters, placement_of
from shardwise.search.joint_study import expert_cases, problem_of, problem_of_parts, solved, timeline_s
from shardwise.search.methods import method_of
from shardwise.search.problems import GpuGroup, RandomRouting, stage_problem
from shardwise.search.problems.experts._build import routed
from shardwise.search.problems.joint import JointProblem, LineRequest, Link, Part, PartLines, lines_below
from shardwise.simulate.segments import segments_of
from shardwise.software import stack_of
from shardwise.spec.job import Job
from shardwise.spec.load import cluster_of
from shardwise.spec.policy import Policies, Policy

CORE = stack_of("megatron-core")
JOB = Job(seq=8192, global_batch=64)
FEW = ("vpp=1", "micro_batch=1", "cp=1", "pp<=4", "tp<=2", "offload=none", "schedule=1f1b", "sp=1")


def on(cluster, model="llama-3-8b", job=JOB, stack=CORE):
    return case_of(model_of(model), cluster_of(cluster), job, stack)


def brute_force(case, limit, only):
    """Every policy of the space with every split of its layers, one by one, without any bound."""
    best = np.inf
    for policy in {replace(p, recompute="none", recompute_layers=-1) for p in _policies(case, only)}:
        problem = stage_problem([GpuGroup(case, policy.pp)], policy, most_bytes=limit)
        points = np.array([np.concatenate([layers, np.zeros(policy.pp, int)]) for layers in problem.layer_splits()])
        priced = problem.price(points)
        best = min(best, np.where(priced.over > 0, np.inf, priced.seconds).min())
    return best


def _policies(case, only):
    table = table_of(space(case, only=constraints_of(list(only))))
    return [table[i] for i in range(len(table))]


@pytest.mark.parametrize("share", [0.45, 0.9])
def test_bounds_lose_nothing(share):
    case, only = on("8xh100"), (*FEW, "overlap_grad=1", "overlap_param=1", "overlap_tp=1", "overlap_pp=1")
    limit = share * case.cluster.gpu.memory_bytes
    found = lines_below([LineRequest(case, limit, only=constraints_of(list(only)))], np.inf)
    answer = method_of("dp").solve(JointProblem(tuple(found.lines), found.rest_s))
    assert answer.proven
    assert answer.objective_s == pytest.approx(brute_force(case, limit, only), rel=1e-9)


@pytest.mark.parametrize(
    ("cluster", "model", "share", "only", "most"),
    [
        ("8xh100", "llama-3-8b", 0.6, (), 40),
        # some layers recompute selectively and others in full
        ("2x8xh100", "mixtral-8x7b", 0.9, ("tp=2", "pp=1", "cp=2", "ep=8", "micro_batch=4", "zero=2"), 6),
    ],
)
def test_no_line_undercuts_its_bound(cluster, model, share, only, most):
    case = on(cluster, model, Job(seq=4096, global_batch=64))
    limit = share * case.cluster.gpu.memory_bytes
    found = lines_below([LineRequest(case, limit, only=constraints_of(list(only)))], np.inf, most)
    assert found.lines
    for line in found.lines:
        alone = method_of("dp").solve(JointProblem((line,), np.inf))
        assert alone.objective_s >= line.least_s * (1 - 1e-9), line.policy


@pytest.mark.parametrize(
    ("cluster", "model", "batch"), [("8xa100-80", "llama-3-8b", 64), ("2x8xh100", "llama-2-13b", 64)]
)
def test_never_worse_than_the_plan(cluster, model, batch):
    case = on(cluster, model, Job(seq=4096, global_batch=batch))
    ranked = scan(case, top=1, losers=False)
    result = solved(problem_of(ranked.best, [LineRequest(case, ranked.limit_bytes)]), budget=2000)
    assert result.plain == pytest.approx(ranked.best[0].step_s)
    assert result.objective <= result.plain * (1 + 1e-12)
    assert 0 < result.bound <= result.objective
    both = timeline_s(case, result)
    assert both is None or both[1] <= both[0] * 1.05, "the timeline must not deny what the closed form says"


def test_uneven_stages_win_where_a_pipeline_is_all_there_is():
    """With one GPU a stage the head's stage holds less: the plan deals layers out evenly."""
    case = on("8xh100", job=Job(seq=8192, global_batch=256))
    only = constraints_of(["pp=8", "vpp=1", "schedule=1f1b"])
    ranked = scan(case, top=1, losers=False, only=only)
    result = solved(problem_of(ranked.best, [LineRequest(case, ranked.limit_bytes, only=only)]), budget=2000)
    held = result.problem.assignment(result.point)
    assert result.gain > 0.005
    assert result.gap <= 1e-9
    assert sum(held.layers) == 32
    assert held.layers[-1] < 4
    assert max(held.peak_bytes) <= ranked.limit_bytes
    before, after = timeline_s(case, result)
    assert after < before


@pytest.mark.parametrize("share", [0.9, 0.7, 0.5])
def test_a_stage_that_recomputes_holds_what_the_estimate_says(share):
    case, policy = on("8xh100"), Policy(pp=4, dp=2)
    whole = estimate(case, Policies.of([policy]), every_stage=True).memory.total[0, 0]
    found = segments_of(case, policy, share * whole)
    again = int(found.recomputed[0, 0, 8])
    assert 0 < again <= 8
    told = estimate(case, Policies.of([replace(policy, recompute="full", recompute_layers=again)]), every_stage=True)
    assert found.bytes[0, 0, 8] == pytest.approx(told.memory.total[0, 0], rel=1e-9)


def parts_of(names, batch=64):
    cases = [on(name, job=Job(seq=4096, global_batch=batch)) for name in names]
    return [Part(case, 0.9 * case.cluster.gpu.memory_bytes) for case in cases]


def test_three_kinds_of_gpu_share_the_layers_by_speed():
    parts = parts_of(("2xh200", "2xh100", "2xa100-80"))
    known = known_lines(parts, Link(50e9), CORE, {})
    assert {line.what.split()[0] for line in known} >= {"on", "all"}
    result = solved(problem_of_parts(known, PartLines(tuple(parts), Link(50e9))), budget=2000)
    assert result.objective < result.plain
    held, line = result.problem.assignment(result.point), result.line
    share = {}
    for layers, option in zip(held.layers, held.options, strict=True):
        own = line.stages.options[option]
        share.setdefault(own.cluster, []).append(layers)
    assert sum(share["2xh200"]) >= sum(share["2xh100"]) > sum(share["2xa100-80"])


def test_a_thin_link_paces_the_pipeline():
    parts = parts_of(("4xh100", "4xa100-80"))
    steps = [
        solved(problem_of_parts([], PartLines(tuple(parts), Link(rate))), budget=2000).objective
        for rate in (100e9, 1e9, 1e8)
    ]
    assert steps == sorted(steps)
    job = parts[0].case.job
    assert steps[2] > job.global_batch * job.seq * 4096 * 2 / 1e8, "all activations cross it once"


def test_dollars_leave_out_what_costs_more_than_it_brings():
    cases = [on(name, job=Job(seq=4096, global_batch=64)) for name in ("4xh100", "4xa100-80")]
    dear = [Part(case, 0.9 * case.cluster.gpu.memory_bytes, usd) for case, usd in zip(cases, (1.0, 50.0), strict=True)]
    known = known_lines(dear, Link(50e9), CORE, {})
    result = solved(problem_of_parts(known, PartLines(tuple(dear), Link(50e9), 51.0)), budget=2000)
    assert result.line.parts == ("4xh100",)


def test_levelled_is_the_weakest_in_every_respect():
    cases = [on(name) for name in ("2x8xh100", "8xl40s")]
    made = levelled(cases, Link(1e9), CORE).cluster
    assert made.gpus == 24
    assert made.gpu.name == "l40s"
    assert made.gpu.memory_bytes == min(case.cluster.gpu.memory_bytes for case in cases)


def test_a_placement_saves_at_most_what_is_exposed():
    cluster = cluster_of("ethernet-100g-a100:128")
    assert placement_matters(cluster)
    assert not placement_matters(cluster_of("8xh100"))
    case = on("ethernet-100g-a100:128", job=Job(seq=4096, global_batch=128))
    found = placement_of(case, Policy(tp=8, pp=4, dp=4), None)
    assert found is not None
    assert 0 <= found.saved_s <= found.exposed_s
    assert found.after_s <= found.before_s


def test_an_expert_map_is_no_worse_than_experts_in_order():
    case = on("8xh100", "mixtral-8x7b")
    sample = routed(
        next(kind.experts for kind in case.model.kinds if kind.experts), RandomRouting(skew=1.0, tokens=200)
    )
    case_of_ep, map_of = expert_cases(case, sample)
    found = map_of(4)
    assert 1.0 <= found.imbalance <= found.in_order
    assert sorted(set(found.rank_of)) == [0, 1, 2, 3]
    assert case_of_ep(4).stack.experts.expert_imbalance == pytest.approx(found.imbalance)
    assert map_of(1).imbalance == 1.0


def test_all_five_methods_on_one_problem():
    case = on("8xh100")
    only = constraints_of(list(FEW))
    found = lines_below([LineRequest(case, 0.5 * case.cluster.gpu.memory_bytes, only=only)], np.inf, 4)
    problem = JointProblem(tuple(found.lines), np.inf)
    answers = {name: method_of(name).solve(problem, budget_evaluations=1500)
               for name in ("dp", "exhaustive", "ip", "zeroth", "rl")}  # fmt: skip
    best = answers["dp"].objective_s
    for (name, answer), close in product(answers.items(), [1e-7]):
        exact = name in ("dp", "exhaustive", "ip")
        assert answer.proven == exact
        assert best * (1 - close) <= answer.objective_s <= best * (1 + (close if exact else 0.02)), name
