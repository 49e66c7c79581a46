"""A schedule that goes down the ranks and up again leaves both ends of the model on the first one."""

import numpy as np
import pytest

from shardwise.spec.arch import model_of
from shardwise.spec.job import Job
from shardwise.spec.policy import Policies, Policy
from shardwise.spec.software import stack_of
from shardwise.work import work_of
from shardwise.work.case import training_of

MODEL, JOB = model_of("llama-3-8b"), Job(seq=2048, global_batch=64)


def ends(*names: str):
    policies = Policies.of([Policy(pp=4, vpp=2 if name != "1f1b" else 1, schedule=name) for name in names])
    work = work_of(training_of(MODEL, JOB, stack_of("megatron-core")), policies, every_stage=True)
    return work.stages, work.parameters[0]


@pytest.mark.parametrize("name", ["zb_v", "dualpipe_v"])
def test_head_is_with_the_embedding(name: str) -> None:
    stages, _ = ends(name)
    assert stages.first.tolist() == stages.last.tolist() == [[1.0, 0.0, 0.0, 0.0]]


def test_other_rows_keep_theirs_and_nothing_is_lost() -> None:
    stages, dense = ends("1f1b", "zb_v", "interleaved")
    assert stages.last.tolist() == [[0, 0, 0, 1], [1, 0, 0, 0], [0, 0, 0, 1]]
    assert np.ptp(dense.sum(axis=1)) == 0
