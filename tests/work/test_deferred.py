"""Weight gradients that are put off keep the input and the output gradient of every product until they run."""

import numpy as np
import pytest

from shardwise import Job, Policy, case_of, cluster_of, model_of, stack_of
from shardwise.spec.policy import Policies
from shardwise.work import work_of

ELEMENT = 2


@pytest.mark.parametrize("model", ["llama-3-8b", "qwen3-8b", "gpt3-13b", "gemma-2-9b"])
@pytest.mark.parametrize("policy", [Policy(pp=2, dp=4), Policy(pp=2, tp=4, dp=1), Policy(pp=2, tp=4, dp=1, sp=False)])
def test_inputs_and_output_gradients_of_all_products(model: str, policy: Policy) -> None:
    shape = model_of(model)
    case = case_of(shape, cluster_of("8xh100"), Job(seq=2048, global_batch=64), stack_of("megatron-core"))
    work = work_of(case, Policies.of([policy]), every_stage=True)
    layer = work.kinds[0]
    shared = policy.tp if policy.sp else 1
    expected = 0.0
    for gemm in layer.gemms:
        assert np.all(np.asarray(gemm.batch) == 1)
        # these read the residual stream, which is kept as it is cut between them
        kept = gemm.k / shared if gemm.name in ("qkv", "feed-forward up") else gemm.k
        expected = expected + ELEMENT * np.asarray(gemm.m) * (kept + np.asarray(gemm.n))
    assert float(np.max(layer.deferred_bytes)) == pytest.approx(float(np.max(expected)))
