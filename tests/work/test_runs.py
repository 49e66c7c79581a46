"""What is worked out once for a run of policies is what each policy alone would give."""

import numpy as np
import pytest

from shardwise.arch import model_of
from shardwise.case import case_of
from shardwise.estimate.closed_form import estimate
from shardwise.plan import Limits, space, table_of
from shardwise.plan.constraints import constraints_of
from shardwise.software import stack_of
from shardwise.spec.job import Job
from shardwise.spec.load import cluster_of
from shardwise.spec.policy import FRAME, Policies, Policy
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
