"""One search over policy and stages: its bounds lose nothing, and its answer is never worse than the plan's."""

from itertools import product

import numpy as np
import pytest
from msgspec.structs import replace

from shardwise.plan import scan, space
from shardwise.plan.constraints import constraints_of
from shardwise.plan.every import table_of
from shardwise.plan.search.joint_blocks import block_lines
from shardwise.plan.search.joint_parts import known_lines, levelled
from shardwise.plan.search.joint_placement import placement_matters, placement_of, step_of, without_uplinks
from shardwise.plan.search.joint_study import expert_cases, problem_of, problem_of_parts, solved, timeline_s
from shardwise.plan.search.methods import method_of
from shardwise.plan.search.problems import GpuGroup, RandomRouting, stage_problem
from shardwise.plan.search.problems.experts._build import routed
from shardwise.plan.search.problems.joint import ClusterPart, JointProblem, LineRequest, PartLink, lines_below
from shardwise.spec.arch import model_of
from shardwise.spec.job import Job
from shardwise.spec.load import cluster_of
from shardwise.spec.policy import Policies, Policy
from shardwise.spec.software import stack_of
from shardwise.step.estimate.closed_form import estimate
from shardwise.step.simulate.segments import segments_of
from shardwise.work.case import case_of

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
    return [ClusterPart(case, 0.9 * case.cluster.gpu.memory_bytes) for case in cases]


def test_three_kinds_of_gpu_share_the_layers_by_speed():
    parts = parts_of(("2xh200", "2xh100", "2xa100-80"))
    known = known_lines(parts, PartLink(50e9), CORE, {})
    assert {line.what.split()[0] for line in known} >= {"on", "all"}
    result = solved(problem_of_parts(known, parts, PartLink(50e9)), budget=2000)
    assert result.objective < result.plain
    held, line = result.problem.assignment(result.point), result.line
    share = {}
    for layers, option in zip(held.layers, held.options, strict=True):
        own = line.stages.options[option]
        share.setdefault(own.cluster, []).append(layers)
    assert sum(share["2xh200"]) >= sum(share["2xh100"]) > sum(share["2xa100-80"])


def test_a_thin_link_paces_the_pipeline():
    parts = parts_of(("4xh100", "4xa100-80"))
    steps = [solved(problem_of_parts([], parts, PartLink(rate)), budget=2000).objective for rate in (100e9, 1e9, 1e8)]
    assert steps == sorted(steps)
    job = parts[0].case.job
    assert steps[2] > job.global_batch * job.seq * 4096 * 2 / 1e8, "all activations cross it once"


def test_dollars_leave_out_what_costs_more_than_it_brings():
    cases = [on(name, job=Job(seq=4096, global_batch=64)) for name in ("4xh100", "4xa100-80")]
    dear = [
        ClusterPart(case, 0.9 * case.cluster.gpu.memory_bytes, usd)
        for case, usd in zip(cases, (1.0, 50.0), strict=True)
    ]
    known = known_lines(dear, PartLink(50e9), CORE, {})
    result = solved(problem_of_parts(known, dear, PartLink(50e9)), budget=2000)
    assert result.line.parts == ("4xh100",)


def test_a_pipeline_may_leave_a_part_out():
    """Two parts that are cheap together, and one that costs more than it brings."""
    cases = [on(name, job=Job(seq=4096, global_batch=64)) for name in ("2xh100", "2xh200", "2xa100-80")]
    usd = (1.0, 1.1, 20.0)
    parts = [
        ClusterPart(case, 0.6 * case.cluster.gpu.memory_bytes, each) for case, each in zip(cases, usd, strict=True)
    ]
    result = solved(problem_of_parts([], parts, PartLink(100e9)), budget=2000)
    assert sorted(result.line.parts) == ["2xh100", "2xh200"]
    assert result.line.weight == pytest.approx(2.1)


def test_levelled_is_the_weakest_in_every_respect():
    cases = [on(name) for name in ("2x8xh100", "8xl40s")]
    made = levelled(cases, PartLink(1e9), CORE).cluster
    assert made.gpus == 24
    assert made.gpu.name == "l40s"
    assert made.gpu.memory_bytes == min(case.cluster.gpu.memory_bytes for case in cases)


def test_stages_may_have_a_tensor_parallelism_of_their_own():
    """Where memory is short on the first stages only; and the five methods can be asked about it."""
    case = on("8xa100-40", job=Job(seq=8192, global_batch=64))
    only = constraints_of(["vpp=1", "cp=1", "zero=1", "offload=none", "pp=4"])
    limit = 0.9 * case.cluster.gpu.memory_bytes
    lines = [line for line in lines_below([LineRequest(case, limit, only=only)], np.inf).lines
             if line.policy.dp * line.policy.micro_batch == 4]  # fmt: skip
    alike = solved(JointProblem(tuple(lines), np.inf), budget=2000)
    unlike = min(block_lines(lines, alike.objective), key=lambda line: line.least_s)
    problem = JointProblem((*lines, unlike), np.inf)
    result = solved(problem, budget=2000)
    assert result.line.unlike
    assert result.objective < 0.99 * alike.objective
    assert unlike.least_s <= result.objective
    held = result.problem.assignment(result.point)
    own = [unlike.stages.options[option].policy for option in held.options]
    assert len({policy.tp for policy in own}) > 1
    assert {(policy.tp * policy.dp, policy.dp * policy.micro_batch) for policy in own} == {(2, 4)}
    assert max(held.peak_bytes) <= limit
    assert sum(held.layers) == 32


ETHERNET = "ethernet-100g-a100:128"


def test_no_placement_is_faster_than_one_leaf_for_all():
    case = on(ETHERNET, job=Job(seq=4096, global_batch=128))
    assert placement_matters(case.cluster)
    assert not placement_matters(cluster_of("8xh100"))
    widest = without_uplinks(case)
    assert widest.cluster.gpus == case.cluster.gpus
    assert not placement_matters(widest.cluster)
    tried = [Policy(tp=tp, pp=pp, dp=128 // tp // pp, zero=1) for tp in (1, 2, 4, 8) for pp in (1, 2, 4, 8)]
    in_order, open_ = (estimate(each, Policies.of(tried)).times.step_s for each in (case, widest))
    assert (open_ <= in_order * (1 + 1e-9)).all()
    assert (open_ < in_order * 0.99).any(), "uplinks cost something here"
    found = placement_of(case, widest, Policy(tp=8, pp=4, dp=4), None)
    if found is not None:
        step = step_of(case, Policy(tp=8, pp=4, dp=4), None)
        assert 0 < found.saved_s <= step - step_of(widest, Policy(tp=8, pp=4, dp=4), None) + 1e-12
        assert found.after_s <= found.before_s


def test_nodes_are_placed_until_no_policy_can_be_better():
    case = on(ETHERNET, job=Job(seq=4096, global_batch=128))
    only = constraints_of(["vpp=1", "micro_batch=1", "cp=1", "zero=1", "tp>=4", "offload=none"])
    ranked = scan(case, top=1, losers=False, only=only)
    request = LineRequest(case, ranked.limit_bytes, only=only, planned=True, open_case=without_uplinks(case))
    problem = problem_of(ranked.best, [request])
    result = solved(problem, budget=2000, placed_on=case)
    in_order = solved(problem, budget=2000)
    assert result.objective <= in_order.objective
    assert result.bound <= result.objective
    # of every line the bound with nodes anywhere is below the one with nodes in order, and none below the answer's
    built = [line for line in problem.lines if line.build is not None]
    assert built
    assert all(result.bound * (1 - 1e-9) <= line.placed_s <= line.least_s for line in built)


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
