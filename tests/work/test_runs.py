"""What is worked out once for a run of policies is what each policy alone would give."""

import numpy as np
import pytest

from shardwise.plan import Limits, space, table_of
from shardwise.plan.constraints import constraints_of
from shardwise.spec.arch import model_of
from shardwise.spec.job import Job
from shardwise.spec.load import cluster_of
from shardwise.spec.policy import FRAME, Policies, Policy
from shardwise.spec.software import stack_of
from shardwise.step.estimate.closed_form import estimate
from shardwise.work.case import case_of
from shardwise.work.runs import runs_of


def test_runs_are_neighbours_that_agree():
    two = Policy(tp=2)
    policies = Policies.of([two, Policy(tp=2, zero=3), Policy(tp=4), two, two, Policy(tp=2, offload="both")])
    runs = runs_of(policies, FRAME)
    assert runs.first.tolist() == [0, 2, 3]
    assert runs.of.tolist() == [0, 0, 1, 2, 2, 2]
    assert runs.spread(np.array([1.0, 2.0, 3.0])).tolist() == [1, 1, 2, 3, 3, 3]
    assert runs.spread(7.0).tolist() == [7] * 6


def test_short_runs_are_not_worth_it():
    policies = Policies.of([Policy(tp=2), Policy(tp=2, zero=3), Policy(tp=4)])
    runs = runs_of(policies, FRAME)
    assert runs.of is None
    assert runs.first.tolist() == [0, 1, 2]


def test_rows_that_agree_may_lie_anywhere():
    two, four = Policy(tp=2), Policy(tp=4)
    policies = Policies.of([two, four, Policy(tp=2, zero=3), four, two])
    assert runs_of(policies, FRAME).of is None
    runs = runs_of(policies, FRAME, scattered=True)
    assert runs.of.tolist() == [0, 1, 0, 1, 0]
    assert runs.first.tolist() == [0, 1]


def test_finer_runs_are_parts_of_the_others():
    sharded = Policy(tp=2, zero=3)
    policies = Policies.of([Policy(tp=2), sharded, Policy(tp=4), sharded, Policy(tp=4), sharded])
    runs = runs_of(policies, FRAME, scattered=True)
    finer = runs.finer(policies, ("zero", "shard_group"))
    assert finer.of.tolist() == [0, 1, 2, 1, 2, 1]
    assert finer.first.tolist() == [0, 1, 2]
    assert runs.among(finer.first).of.tolist() == [0, 0, 1]
    assert runs.among(finer.first).first.tolist() == [0, 2]
    assert runs.finer(policies, ("zero", "overlap_tp")).of.tolist() == finer.of.tolist()


def test_finer_runs_that_are_short_are_not_worth_it():
    policies = Policies.of([Policy(tp=2, zero=zero) for zero in range(4)])
    runs = runs_of(policies, FRAME)
    assert runs.of.tolist() == [0, 0, 0, 0]
    assert runs.finer(policies, ("zero",)).of is None


def test_shuffled_policies_are_priced_as_in_order():
    given = case_of(
        model_of("llama-3-8b"), cluster_of("2x8xh100"), Job(seq=1024, global_batch=64), stack_of("nanotron")
    )
    policies = table_of(space(given, Limits(some_layers=False, zero_with_stages=3), constraints_of(["micro=1,cp=1"])))
    order = np.random.default_rng(1).permutation(len(policies))
    found, shuffled = estimate(given, policies), estimate(given, policies.take(order))
    np.testing.assert_allclose(shuffled.times.step_s, found.times.step_s[order], rtol=1e-12)
    np.testing.assert_allclose(shuffled.memory.peak, found.memory.peak[order], rtol=1e-12)


@pytest.mark.parametrize(
    ("model", "stack"), [("llama-3-8b", "megatron-core"), ("deepseek-v2-lite", "torchtitan"), ("gpt2", "nanotron")]
)
def test_together_and_alone_give_the_same(model, stack):
    given = (model_of(model), cluster_of("2x8xh100"), Job(seq=1024, global_batch=64))
    only = constraints_of(["pp<=2,vpp=1,cp=1,micro=1,overlap_pp=off,overlap_grad=on"])
    software = stack_of(stack)
    policies = table_of(space(case_of(*given, software), Limits(some_layers=False, offload=("none", "both")), only))
    rows = np.random.default_rng(0).choice(len(policies), 60, replace=False)
    together = estimate(case_of(*given, software), policies)
    for row in rows:
        alone = estimate(case_of(*given, software), policies.take(np.array([row])), every_stage=True)
        assert alone.times.step_s[0] == pytest.approx(together.times.step_s[row], rel=1e-12)
        assert alone.memory.peak[0] == pytest.approx(together.memory.peak[row], rel=1e-12)
        assert alone.memory.host_bytes[0] == pytest.approx(together.memory.host_bytes[row], rel=1e-12)
