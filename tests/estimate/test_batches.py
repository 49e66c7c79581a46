"""Policies with global batches of their own, priced together, are what each is with a job of its batch."""

import numpy as np
import pytest

from shardwise.spec.arch import model_of
from shardwise.spec.job import Job
from shardwise.spec.load import cluster_of
from shardwise.spec.policy import Policies, Policy
from shardwise.spec.software import stack_of
from shardwise.step.estimate.closed_form import Estimate, estimate
from shardwise.work.case import case_of

POLICIES = [
    Policy(tp=4, pp=4, dp=4, zero=1, micro_batch=1),
    Policy(tp=4, pp=4, dp=4, zero=1, micro_batch=2, vpp=2, schedule="interleaved"),
    Policy(tp=8, dp=8, zero=3, micro_batch=1, recompute="full"),
]


@pytest.mark.parametrize("model", ["llama-3-8b", "mixtral-8x7b"])
def test_batches_together_are_batches_alone(model: str) -> None:
    def priced(batch: int, policies: list[Policy], batches: np.ndarray | None = None) -> Estimate:
        job = Job(seq=4096, global_batch=batch)
        case = case_of(model_of(model), cluster_of("8x8xh100"), job, stack_of("megatron-core"))
        return estimate(case, Policies.of(policies), every_stage=True, batches=batches)

    batches = [128, 1024, 256]
    together = priced(128, [p for p in POLICIES for _ in batches], np.array(batches * len(POLICIES)))
    for place, batch in enumerate(batches):
        alone = priced(batch, POLICIES)
        for seen, known in (
            (together.times.step_s, alone.times.step_s),
            (together.memory.peak, alone.memory.peak),
            (together.tokens_per_s_per_gpu, alone.tokens_per_s_per_gpu),
        ):
            np.testing.assert_allclose(seen[place :: len(batches)], known, rtol=1e-12)
    steps = together.times.step_s.reshape(len(POLICIES), len(batches))
    assert (steps[:, 1] > 1.9 * steps[:, 2]).all()  # four times the batch: they are not one price
