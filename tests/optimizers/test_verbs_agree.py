"""Answers of several verbs on the same run with an optimizer of whole matrices."""

import pytest
from msgspec.structs import replace

from shardwise.plugins.optimizers import update_rule
from shardwise.spec.arch import model_of
from shardwise.spec.job import Job, optimizer_of
from shardwise.spec.load import cluster_of
from shardwise.spec.policy import Policies, Policy
from shardwise.spec.software import stack_of
from shardwise.step.estimate.closed_form import estimate
from shardwise.step.simulate import simulate
from shardwise.work.case import case_of


@pytest.mark.parametrize("name", ["muon", "soap", "shampoo", "adafactor", "adamw-8bit"])
def test_simulation_and_closed_form(name):
    """Over ZeRO's stages and layouts the two agree as they do with AdamW."""
    job = Job(seq=4096, global_batch=32)
    case = case_of(model_of("llama-3.2-1b"), cluster_of("8xh100"), job, stack_of("megatron-core"))

    def both(optimizer, policy):
        mine = replace(case.job, optimizer=optimizer_of(optimizer))
        its = case_of(case.model, case.cluster, mine, case.stack)
        return float(estimate(its, Policies.of([policy])).times.step_s[0]), simulate(its, policy).step_s

    for layout in ("", *update_rule(name).layouts[:1]):
        policy = Policy(dp=8, zero=1, matrix_layout=layout)
        closed, simulated = both(name, policy)
        plain, plain_simulated = both("adamw", replace_layout(policy))
        assert simulated - plain_simulated == pytest.approx(closed - plain, abs=0.01 * closed)


def replace_layout(policy):
    return Policy(dp=policy.dp, zero=policy.zero)
