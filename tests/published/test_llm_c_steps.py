"""Steps that llm.c's own scripts state (karpathy/llm.c scripts/run_gpt2_*.sh), on eight GPUs with -z 1 -r 0.

They are taken as any loop with hand-written fused kernels; nothing of that was fitted on them.
"""

import pytest

from shardwise.spec.arch import model_of
from shardwise.spec.job import Job
from shardwise.spec.load import cluster_of
from shardwise.spec.policy import Policies, Policy
from shardwise.spec.software import stack_of
from shardwise.step.estimate.closed_form import estimate
from shardwise.work.case import case_of

STATED = [
    ("gpt2", "8xa100-80", 64, 524_288, 0.300),
    ("gpt2-medium", "8xa100-80", 64, 524_288, 0.820),
    ("gpt2-large", "8xa100-80", 32, 524_288, 1.70),
    ("gpt2-xl", "8xh100", 16, 1_048_576, 2.80),
]


@pytest.mark.parametrize(("model", "cluster", "micro_batch", "tokens", "seconds"), STATED)
def test_a_stated_step_is_met(model: str, cluster: str, micro_batch: int, tokens: int, seconds: float) -> None:
    stack = stack_of("torch-fsdp@fused")
    job = Job(seq=1024, global_batch=tokens // 1024, precision=stack.precision_for("bf16"))
    policy = Policy(dp=8, zero=1, micro_batch=micro_batch)
    found = estimate(case_of(model_of(model), cluster_of(cluster), job, stack), Policies.of([policy]))
    assert float(found.times.step_s[0]) == pytest.approx(seconds, rel=0.13)
