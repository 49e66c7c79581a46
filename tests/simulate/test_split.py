"""The timeline of a split is what the search for it promised."""

import pytest

from shardwise.plan.search.methods import method_of
from shardwise.plan.search.problems import GpuGroup, stage_problem
from shardwise.spec.arch import model_of
from shardwise.spec.job import Job
from shardwise.spec.load import cluster_of
from shardwise.spec.policy import Policy
from shardwise.spec.software import stack_of
from shardwise.step.simulate.split import simulate_split
from shardwise.work.case import case_of

CORE, LLAMA = stack_of("megatron-core"), model_of("llama-3-8b")
JOB, EIGHT = Job(seq=8192, global_batch=64), Policy(pp=8)


def case(on):
    return case_of(LLAMA, cluster_of(on), JOB, CORE)


def even_and_best(on, headroom=1.0):
    problem = stage_problem([GpuGroup(case(on), 8)], EIGHT, headroom=headroom)
    found = method_of("dp").solve(problem)
    return problem.assignment(problem.default), problem.assignment(found.point)


def simulated(on, split):
    return simulate_split(case(on), EIGHT, split.layers, split.recomputed)


def test_the_best_split_is_faster_than_the_even_one():
    even, best = even_and_best("8xh100")
    assert simulated("8xh100", best).step_s < simulated("8xh100", even).step_s


@pytest.mark.parametrize("headroom", [1.0, 0.25])
def test_the_timeline_holds_what_the_split_promises(headroom):
    _, best = even_and_best("8xh200", headroom)
    assert any(best.recomputed) == (headroom < 1)
    peaks = [peak.bytes for peak in simulated("8xh200", best).timeline().peaks()]
    assert peaks == pytest.approx(best.peak_bytes, rel=0.01)


def test_what_recomputes_takes_longer():
    _, best = even_and_best("8xh200")
    some = simulate_split(case("8xh200"), EIGHT, best.layers, [1] * 8)
    every = simulate_split(case("8xh200"), EIGHT, best.layers, best.layers)
    assert simulated("8xh200", best).step_s < some.step_s < every.step_s
