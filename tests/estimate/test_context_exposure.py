"""What context parallelism sends: a ring passes blocks on under attention; what is gathered must come before it."""

import pytest

from shardwise.spec.arch import model_of
from shardwise.spec.job import Job
from shardwise.spec.load import cluster_of
from shardwise.spec.policy import Policies, Policy
from shardwise.spec.software import known_stack
from shardwise.step.estimate.closed_form import estimate
from shardwise.work.case import case_of


def sent_and_hidden(across: str) -> tuple[float, float]:
    stack = known_stack("megatron-core").changed(context_parallel=across)
    job, policies = Job(seq=65_536, global_batch=4), Policies.of([Policy(cp=4, dp=2, recompute="full")])
    found = estimate(case_of(model_of("llama-3-8b"), cluster_of("8xh100"), job, stack), policies, every_stage=True)
    return float(found.times.parts["cp_comm"][0]), float(found.times.hidden["cp"][0])


def test_a_ring_is_hidden_under_attention() -> None:
    exposed, hidden = sent_and_hidden("ring")
    assert hidden > 0
    assert exposed == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize("across", ["gather", "ulysses"])
def test_what_attention_waits_for_is_not(across: str) -> None:
    exposed, hidden = sent_and_hidden(across)
    assert exposed > 0
    assert hidden == 0
