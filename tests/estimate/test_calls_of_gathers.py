"""What each rank of a gather costs the host, where a program says that it costs something."""

import pytest

from shardwise.spec.arch import model_from_shape
from shardwise.spec.job import Job
from shardwise.spec.load import cluster_from
from shardwise.spec.policy import Policies, Policy
from shardwise.spec.software import stack_of
from shardwise.step.estimate.closed_form import estimate
from shardwise.work.case import case_of

MODEL = model_from_shape("m", 8, 2048, 16, 16, 8192, False, 50_257, tied=True)


def waits(ops: float, gpus: int, batch: int = 64) -> float:
    stack = stack_of("torch-fsdp").changed(ops_per_peer=ops, host_s_per_op=1e-4)
    case = case_of(MODEL, cluster_from("h100-sxm", gpus, 8), Job(seq=2048, global_batch=batch), stack)
    found = estimate(case, Policies.of([Policy(dp=gpus, zero=3, micro_batch=1, overlap_param=False)]))
    return float(found.times.parts["fsdp_comm"][0])


def test_calls_take_as_long_as_there_are_ranks() -> None:
    more = [waits(2.0, gpus, gpus) - waits(1.0, gpus, gpus) for gpus in (8, 16, 32)]
    assert more[1] == pytest.approx(2 * more[0])
    assert more[2] == pytest.approx(4 * more[0])
    assert more[0] > MODEL.layers * 2 * 8 * 1e-4
